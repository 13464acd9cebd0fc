#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

/// A file's size, and its CRC-32C (RFC 3720).
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// A file that appears under its name complete, or not at all.
///
///     AtomicFile file("model.safetensors");
///     file.write(header);
///     file.write(data, bytes);
///     file.commit();
///
/// Writes go to a hidden temporary file `.lockstep-*.tmp` in the same folder. commit() syncs it (fsync),
/// renames it to the final name, and syncs the folder. Until the rename the old file of that name is
/// unchanged: a reader sees either the old bytes or the new ones. If commit() was not called, for example
/// because of an exception, the destructor removes the temporary file. Only a killed process leaves one
/// behind.
///
/// The permissions of the new file follow the process's umask. A symbolic link of that name is replaced, not
/// followed. All members are *Local*; one thread at a time; neither copyable nor movable.
class AtomicFile {
 public:
  /// Creates the temporary file. Throws Error, naming the path and the system's reason, if the folder does
  /// not exist or is not writable; UsageError if `path` has no file name.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes` bytes. Throws Error, naming the path, the position and the system's reason, if the disk
  /// is full or fails; the file cannot be committed after that.
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Moves the file to its final name; it cannot be written to afterwards. Returns the size and checksum of
  /// the written data, computed while writing. Throws Error as write() does, and UsageError after a failed
  /// write or a commit. If it throws, the old file is unchanged, except in one case, which the text names:
  /// syncing the folder failed after the rename.
  FileDigest commit();

 private:
  void require_open() const;
  [[noreturn]] void fail(const char* what, int error);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::size_t written_ = 0;
  std::uint32_t checksum_ = 0;
  int descriptor_ = -1;
};

/// Writes a file in one call. *Local*. Throws as AtomicFile does.
FileDigest write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
