#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace lockstep {

/// A gzip file that is decompressed sequentially. Its errors are DataError and name the file. One thread at a
/// time.
class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& path);

  /// Upper bound of the decompressed size: deflate expands one byte to at most 1032.
  std::uint64_t most_bytes() const noexcept { return most_bytes_; }

  /// Fills `data` with the next `bytes` bytes. Throws DataError if fewer are left or the file is damaged.
  void read(void* data, std::size_t bytes);

  /// Whether the end is reached; then verifies the file's checksum.
  bool at_end();

 private:
  std::size_t read_some(void* data, std::size_t bytes);

  std::filesystem::path path_;
  std::shared_ptr<void> file_;
  std::uint64_t most_bytes_ = 0;
};

}  // namespace lockstep
