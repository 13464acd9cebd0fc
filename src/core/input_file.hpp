#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace lockstep {

/// A regular file that is read sequentially, for formats that are checked against the file's size. Errors are
/// DataError, because the content comes from outside; the text names the file. All members are *Local*; one
/// thread at a time; neither copyable nor movable.
class InputFile {
 public:
  /// Opens the file. Throws DataError, naming the path and the system's reason, if it cannot be opened or is
  /// not a regular file (a folder, a pipe, a device: these have no size to check against).
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// The size in bytes when the file was opened. If the file shrinks afterwards, read() throws; bytes that
  /// are appended are not seen.
  std::uint64_t size() const noexcept { return size_; }

  /// For other system calls; owned by this object.
  int descriptor() const noexcept { return descriptor_; }

  /// Fills `data` with the next `bytes` bytes. Throws DataError, naming the path and the position, if fewer
  /// are left or the system fails.
  void read(void* data, std::size_t bytes);

  /// The same from a given position; the position of read() does not change.
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep
