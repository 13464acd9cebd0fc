#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace lockstep {

/// A regular file that is read from its beginning to its end, for formats that are checked against the file's
/// size. Everything is *Local*; one thread at a time; not copied and not moved.
class InputFile {
 public:
  /// Opens it. Throws DataError, naming the path and the system's reason, when it cannot be opened or is no
  /// regular file (a folder, a pipe, a device: those have no size to check against).
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Bytes, when it was opened.
  std::uint64_t size() const noexcept { return size_; }

  /// Fills `data` with the next `bytes` bytes. Throws DataError, naming the path and the place, when fewer
  /// are left or the system fails.
  void read(void* data, std::size_t bytes);

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t place_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep
