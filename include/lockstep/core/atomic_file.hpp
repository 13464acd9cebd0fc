#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "lockstep/core/checksum.hpp"

namespace lockstep {

/// A file that appears under its name whole, or not at all.
///
///     AtomicFile file("model.safetensors");
///     file.write(header);
///     file.write(data, bytes);
///     file.commit();
///
/// Writes go to a hidden temporary file `.lockstep-*.tmp` in the same folder. commit() brings it to the disk
/// (fsync), renames it over the name, and brings the folder's entry to the disk. Until the rename the old
/// file of that name is not touched; a reader sees the old bytes or the new ones. A destructor without
/// commit(), as an exception causes it, removes the temporary file. Only a process that is killed leaves one
/// behind.
///
/// The new file has the permissions that the process's umask gives. A symbolic link of that name is replaced,
/// not followed. Everything is *Local*; one thread at a time; not copied and not moved.
class AtomicFile {
 public:
  /// Creates the temporary file. Throws Error, naming the path and the system's reason, when it cannot: the
  /// folder does not exist or may not be written. UsageError when `path` has no file name.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes` bytes. Throws Error, naming the path, the place and the system's reason, when the disk
  /// is full or fails; the file cannot be committed then.
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Makes the file appear under its name; nothing can be written afterwards. Returns the size and checksum
  /// of what was written, which cost no second reading. Throws Error as write() does, and UsageError after a
  /// failed write or a commit. When it throws, the old file is untouched, with one exception that the text
  /// names: the folder could not be brought to the disk after the rename.
  FileDigest commit();

 private:
  void require_open() const;
  [[noreturn]] void fail(const char* what, int error);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::size_t written_ = 0;
  Crc32c checksum_;
  int descriptor_ = -1;
};

/// A file with this text, in one call. *Local*. Throws as AtomicFile does.
FileDigest write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
