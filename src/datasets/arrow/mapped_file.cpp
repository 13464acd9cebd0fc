#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::arrow_file {
namespace {

using file_system::reason;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError("cannot read '" + path.string() + "': " + what + ".");
}

net::FileDescriptor opened(const std::filesystem::path& path) {
  // O_NONBLOCK: otherwise opening a FIFO would wait for a writer.
  net::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(path, reason(errno));
  return file;
}

struct stat status_of(const net::FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) < 0) fail(path, reason(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "it is not a regular file");
  return status;
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : arrow::Buffer(nullptr, 0), path_(std::move(path)) {
  const auto file = opened(path_);
  const auto status = status_of(file, path_);
  size_ = capacity_ = status.st_size;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  if (size_ == 0) return;
  void* const mapped = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) fail(path_, "mapping it failed: " + reason(errno));
  data_ = static_cast<const std::uint8_t*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), static_cast<std::size_t>(size_));
}

std::string MappedFile::fingerprint(const std::function<std::string()>& find) const {
  const std::lock_guard guard(lock_);
  if (fingerprint_.empty()) fingerprint_ = find();
  return fingerprint_;
}

}  // namespace lockstep::arrow_file
