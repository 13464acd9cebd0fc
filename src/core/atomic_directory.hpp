#pragma once

#include <filesystem>

namespace lockstep {

/// A folder that appears under its name complete, or not at all.
///
///     AtomicDirectory folder("run/checkpoint-120");
///     write_file(folder.path() / "model.safetensors");
///     folder.commit();
///
/// Until commit() it is a hidden folder `.lockstep-*.tmp` next to its final path. commit() syncs the folder
/// (its files must be synced by their writers, as AtomicFile does), renames it, and syncs the parent folder.
/// If the path exists, it is exchanged atomically for the new folder if the file system supports this, and
/// removed. Otherwise it is moved away first; if the process is killed between the two steps, neither folder
/// is under the name. If commit() was not called, for example because of an exception, the destructor removes
/// everything. A killed process leaves the hidden folder behind: see remove_leftovers. All members are
/// *Local*; one thread at a time; neither copyable nor movable.
class AtomicDirectory {
 public:
  /// Creates the hidden folder, and missing parent folders. Throws Error, naming the path and the system's
  /// reason; UsageError if `path` has no file name.
  explicit AtomicDirectory(std::filesystem::path path);
  /// The same with a hidden folder chosen by the caller, on the same file system and used by nobody else. Its
  /// content, left by a killed process, is removed.
  AtomicDirectory(std::filesystem::path path, std::filesystem::path temporary);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// The folder to write files to before the commit.
  const std::filesystem::path& path() const noexcept { return temporary_; }

  /// Moves the folder to its final path. Throws Error as the constructor does, UsageError for a second
  /// commit.
  void commit();

 private:
  int take_name();
  void fail_for(int error, const char* what);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

/// Removes a folder. It is first renamed to a hidden name, so that no process sees it partly removed. Throws
/// Error. *Local*.
void remove_folder(const std::filesystem::path& path);

/// Removes what killed processes left in `folder`: hidden files and folders `.lockstep-*.tmp`. Call it only
/// if no other process is writing in the folder, see Lease. Errors are ignored. *Local*.
void remove_leftovers(const std::filesystem::path& folder) noexcept;

}  // namespace lockstep
