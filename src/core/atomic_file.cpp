#include "lockstep/core/atomic_file.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/checksum.hpp"
#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::make_hidden;
using file_system::parent_of;
using file_system::reason;
using file_system::sync_folder;
using file_system::uninterrupted;

/// Small enough to still be in the processor's cache when the checksum is computed.
constexpr std::size_t kWriteBytes = std::size_t{1} << 18;

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename())
    throw UsageError(fmt::format("cannot write a file named '{}': it names a folder.", path_.string()));
  const int error = make_hidden(path_, temporary_, [&](const fs::path& name) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    descriptor_ = uninterrupted([&] { return ::open(name.c_str(), flags, 0666); });
    return descriptor_ >= 0;
  });
  if (error != 0) fail("cannot create a temporary file beside it", error);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(const void* data, std::size_t bytes) {
  require_open();
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto done = uninterrupted([&] { return ::write(descriptor_, next, std::min(bytes, kWriteBytes)); });
    if (done <= 0) fail("writing failed", done < 0 ? errno : ENOSPC);
    Crc32c checksum(checksum_);
    checksum.update(next, static_cast<std::size_t>(done));
    checksum_ = checksum.value();
    next += done;
    bytes -= static_cast<std::size_t>(done);
    written_ += static_cast<std::size_t>(done);
  }
}

FileDigest AtomicFile::commit() {
  require_open();
  if (uninterrupted([&] { return ::fsync(descriptor_); }) < 0) fail("flushing it to the disk failed", errno);
  // Network file systems may report a failed write only here. The descriptor is closed even if close fails.
  const int closed = ::close(descriptor_) < 0 ? errno : 0;
  descriptor_ = -1;
  if (closed != 0 && closed != EINTR) fail("closing it failed", closed);
  if (::rename(temporary_.c_str(), path_.c_str()) < 0) fail("renaming it failed", errno);
  temporary_.clear();
  const int error = sync_folder(parent_of(path_));
  if (error != 0) fail("it is in place, but flushing its folder to the disk failed", error);
  return {written_, checksum_};
}

void AtomicFile::require_open() const {
  if (descriptor_ >= 0) return;
  throw UsageError(fmt::format(
      "the file '{}' was committed already, or a write to it failed: it takes no more.", path_.string()));
}

void AtomicFile::fail(const char* what, int error) {
  discard();
  throw Error(fmt::format(
      "cannot write '{}': {} after {} bytes: {}. Check the folder, the free space and the permissions.",
      path_.string(), what, written_, reason(error)));
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

FileDigest write_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  return file.commit();
}

}  // namespace lockstep
