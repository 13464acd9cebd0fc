#include "datasets/cache/file_copy.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "core/checksum.hpp"
#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::reason;
using file_system::uninterrupted;

constexpr std::size_t kPiece = std::size_t{4} << 20;

/// One end of a copy.
class End {
 public:
  End(fs::path path, int flags)
      : path_(std::move(path)),
        descriptor_(uninterrupted([&] { return ::open(path_.c_str(), flags | O_CLOEXEC, 0666); })) {
    if (descriptor_) return;
    const int error = errno;
    if ((flags & O_CREAT) != 0) fail_to_write(error);
    fail_to_read(error);
  }

  int get() const { return descriptor_.get(); }
  [[noreturn]] void fail_to_read(int error) const {
    throw DataError("cannot read '" + path_.string() + "': " + reason(error) + ".");
  }
  [[noreturn]] void fail_to_write(int error) const {
    throw Error("cannot write '" + path_.string() + "': " + reason(error) + ".");
  }

 private:
  fs::path path_;
  FileDescriptor descriptor_;
};

/// Errors that mean that these two files cannot be copied this way, not that an operation failed.
bool is_refusal(int error) {
  return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == EBADF ||
         error == ETXTBSY || error == EPERM;
}

/// Returns true if everything was copied, false if the system cannot copy these files and has copied nothing.
bool copy_by_kernel(const End& from, const End& to, const std::function<void(std::uint64_t)>& copied) {
  for (bool first = true;; first = false) {
    const auto moved =
        uninterrupted([&] { return ::copy_file_range(from.get(), nullptr, to.get(), nullptr, kPiece, 0); });
    if (moved < 0 && first && is_refusal(errno)) return false;
    if (moved < 0) to.fail_to_write(errno);
    // Some file systems return 0 if they cannot copy; reading then shows what the file has.
    if (moved == 0) return !first;
    copied(static_cast<std::uint64_t>(moved));
  }
}

std::uint32_t copy_through(const End& from, const End& to, const std::function<void(std::uint64_t)>& copied) {
  std::vector<char> piece(kPiece);
  Crc32c checksum;
  for (;;) {
    const auto got = uninterrupted([&] { return ::read(from.get(), piece.data(), piece.size()); });
    if (got < 0) from.fail_to_read(errno);
    if (got == 0) return checksum.value();
    const auto bytes = static_cast<std::size_t>(got);
    checksum.update(piece.data(), bytes);
    if (const int error = file_system::write_all(to.get(), {piece.data(), bytes})) to.fail_to_write(error);
    copied(bytes);
  }
}

}  // namespace

std::uint32_t copy_bytes(const fs::path& from_path, const fs::path& to_path, bool by_kernel,
                         const std::function<void(std::uint64_t)>& copied) {
  const End from(from_path, O_RDONLY);
  const End to(to_path, O_WRONLY | O_CREAT | O_EXCL);
  ::posix_fadvise(from.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::uint32_t checksum = 0;
  if (!by_kernel || !copy_by_kernel(from, to, copied)) checksum = copy_through(from, to, copied);
  if (uninterrupted([&] { return ::fsync(to.get()); }) < 0) to.fail_to_write(errno);
  return checksum;
}

}  // namespace lockstep
