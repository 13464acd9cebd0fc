#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace lockstep {

/// A regular file that is read from its beginning to its end, for formats that are checked against the file's
/// size. Its errors are DataError: what is read comes from outside, and the text names the file. Everything
/// is *Local*; one thread at a time; not copied and not moved.
class InputFile {
 public:
  /// Opens it. Throws DataError, naming the path and the system's reason, when it cannot be opened or is no
  /// regular file (a folder, a pipe, a device: those have no size to check against).
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Its size in bytes when it was opened. A file that shrinks afterwards makes read() throw; bytes that are
  /// added are not seen.
  std::uint64_t size() const noexcept { return size_; }

  /// Fills `data` with the next `bytes` bytes. Throws DataError, naming the path and the place, when fewer
  /// are left or the system fails.
  void read(void* data, std::size_t bytes);

  /// The same from a place of the caller's; the next read() goes on where the one before it ended.
  void read_at(std::uint64_t place, void* data, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t place_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep
