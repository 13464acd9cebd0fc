#pragma once

#include <arrow/buffer.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::arrow_file {

/// A file mapped read-only into memory until the last reference to it or to a slice of it is gone. The bytes
/// are the system's page cache. If the file is truncated while it is mapped, reading the missing part ends
/// the process (SIGBUS): files of data sets are replaced, not modified.
class MappedFile final : public arrow::Buffer {
 public:
  /// Throws DataError, with the path and the reason, if the file cannot be opened or is not a regular file.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(data()), static_cast<std::size_t>(size())};
  }

  /// Whether this is the file with this inode, whatever its path now refers to.
  bool is_inode(dev_t device, ino_t inode) const noexcept { return device == device_ && inode == inode_; }

  /// The content hash of all bytes. `find` computes it and is called once.
  std::string fingerprint(const std::function<std::string()>& find) const;

 private:
  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  mutable std::mutex lock_;
  mutable std::string fingerprint_;
};

}  // namespace lockstep::arrow_file

namespace lockstep::table {

/// The files that a column's chunks are mapped from, and the column's name in each.
struct SourceFiles {
  struct Part {
    std::shared_ptr<const arrow_file::MappedFile> file;
    std::string column;
  };
  std::vector<Part> parts;
};

}  // namespace lockstep::table
