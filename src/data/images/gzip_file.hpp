#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace lockstep {

/// A file of gzip's, unpacked while it is read from its beginning to its end. Its errors are DataError and
/// name the file. One thread at a time.
class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& path);

  /// More bytes than this cannot come out of it: deflate makes at most 1032 of one.
  std::uint64_t most_bytes() const noexcept { return most_bytes_; }

  /// Fills `data` with the next `bytes` bytes. Throws DataError when fewer are left, or the file is broken.
  void read(void* data, std::size_t bytes);

  /// Whether nothing is left; checks the file's checksum then.
  bool at_end();

 private:
  std::size_t read_some(void* data, std::size_t bytes);

  std::filesystem::path path_;
  std::shared_ptr<void> file_;
  std::uint64_t most_bytes_ = 0;
};

}  // namespace lockstep
