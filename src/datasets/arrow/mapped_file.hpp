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

/// A file mapped into memory, for reading only, as long as somebody holds it or a slice of it. The bytes are
/// the system's page cache. A file that is cut short while it is mapped ends the process (SIGBUS) when the
/// missing part is read: files of data sets are replaced, not changed.
class MappedFile final : public arrow::Buffer {
 public:
  /// Throws DataError, naming the path and the reason, for what cannot be opened or is no regular file.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(data()), static_cast<std::size_t>(size())};
  }

  /// Whether it is this file, whatever its name leads to by now.
  bool is_inode(dev_t device, ino_t inode) const noexcept { return device == device_ && inode == inode_; }

  /// The content hash of all its bytes, for which `find` is called once.
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

/// Where a column's pieces are mapped from: files, and the column's name in each.
struct SourceFiles {
  struct Part {
    std::shared_ptr<const arrow_file::MappedFile> file;
    std::string column;
  };
  std::vector<Part> parts;
};

}  // namespace lockstep::table
