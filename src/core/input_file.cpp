#include "core/input_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using file_system::reason;

/// One system call reads at most about 2 GiB.
constexpr std::size_t kReadBytes = std::size_t{1} << 28;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError(fmt::format("cannot read '{}': {}.", path.string(), what));
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe without a writer would block. It has no effect on regular files.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(path_, reason(errno));
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) < 0 ? errno : 0;
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (error == 0 && S_ISREG(status.st_mode)) return;
  ::close(descriptor_);
  fail(path_, error != 0 ? reason(error) : "it is not a regular file");
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* data, std::size_t bytes) {
  read_at(offset_, data, bytes);
  offset_ += bytes;
}

void InputFile::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got = ::pread(descriptor_, next, std::min(bytes, kReadBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, fmt::format("reading at byte {} failed: {}", offset, reason(errno)));
    if (got == 0) {
      fail(path_, fmt::format("it ends at byte {}, but {} bytes more are needed", offset, bytes));
    }
    next += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
}

}  // namespace lockstep
