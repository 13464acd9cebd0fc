#include "datasets/arrow/mapped_file.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/file_system.hpp"
#include "core/input_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {

MappedFile::MappedFile(std::filesystem::path path) : arrow::Buffer(nullptr, 0), path_(std::move(path)) {
  const InputFile file(path_);
  const auto fail = [&] {
    throw DataError(fmt::format("cannot map '{}': {}.", path_.string(), file_system::reason(errno)));
  };
  struct stat status {};
  if (::fstat(file.descriptor(), &status) < 0) fail();
  size_ = capacity_ = status.st_size;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  if (size_ == 0) return;
  void* const mapped =
      ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED) fail();
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
