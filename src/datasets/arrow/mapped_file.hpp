#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "lockstep/datasets/array_data.hpp"

namespace lockstep::arrow_file {

/// A file mapped into memory, for reading only, as long as somebody holds it. The bytes are the system's page
/// cache. A file that is cut short while it is mapped ends the process (SIGBUS) when the missing part is
/// read: files of data sets are replaced, not changed.
class MappedFile {
 public:
  /// Throws DataError, naming the path and the reason, for what cannot be opened or is no regular file.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  const std::uint8_t* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// Whether it is this file, whatever its name leads to by now.
  bool is_inode(dev_t device, ino_t inode) const noexcept { return device == device_ && inode == inode_; }

  /// The content hash of all its bytes, for which `find` is called once.
  std::string fingerprint(const std::function<std::string()>& find) const;

 private:
  std::filesystem::path path_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  mutable std::mutex lock_;
  mutable std::string fingerprint_;
};

/// All of a file, kept mapped by the buffer.
Buffer whole_file(const std::shared_ptr<const MappedFile>& file);

}  // namespace lockstep::arrow_file
