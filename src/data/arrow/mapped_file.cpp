#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/file_system.hpp"
#include "data/table/content_hash.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::arrow_file {
namespace {

using file_system::reason;

constexpr std::size_t kWhole = std::size_t{64} << 20;
constexpr std::size_t kEnds = std::size_t{1} << 20;
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kBlocks = 1024;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError("cannot read '" + path.string() + "': " + what + ".");
}

net::FileDescriptor opened(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer would wait for one.
  net::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(path, reason(errno));
  return file;
}

std::size_t size_of(const net::FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) < 0) fail(path, reason(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "it is no regular file");
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto file = opened(path_);
  size_ = size_of(file, path_);
  if (size_ == 0) return;
  void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) fail(path_, "mapping it failed: " + reason(errno));
  data_ = static_cast<const std::uint8_t*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

std::string MappedFile::identity() const {
  const std::lock_guard guard(lock_);
  if (!identity_.empty()) return identity_;
  table::ContentHash hash;
  hash.update_number(size_);
  if (size_ <= kWhole) {
    hash.update(data_, size_);
  } else {
    hash.update(data_, kEnds);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      hash.update(data_ + (size_ - kBlock) / kBlocks * block, kBlock);
    }
    hash.update(data_ + size_ - kEnds, kEnds);
  }
  identity_ = hash.text();
  return identity_;
}

Buffer whole_file(const std::shared_ptr<const MappedFile>& file) {
  return {file->data(), file->size(), file};
}

}  // namespace lockstep::arrow_file
