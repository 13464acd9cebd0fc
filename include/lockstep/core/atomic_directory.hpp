#pragma once

#include <filesystem>

namespace lockstep {

/// A folder that appears under its name with everything in it, or not at all.
///
///     AtomicDirectory folder("run/checkpoint-120");
///     write_file(folder.path() / "model.safetensors");
///     folder.commit();
///
/// Until commit() it is a hidden folder `.lockstep-*.tmp` beside its final place. commit() brings its entries
/// to the disk (the files in it are their writers' to bring there, as AtomicFile does), renames it, and
/// brings the new name to the disk. A folder that has the name already is exchanged for the new one in one
/// step where the file system can, and removed; elsewhere it is moved away first, and a process that is
/// killed between the two leaves neither under the name. A destructor without commit(), as an exception
/// causes it, removes everything. A process that is killed leaves the hidden folder behind: see
/// remove_leftovers. Everything is *Local*; one thread at a time; not copied and not moved.
class AtomicDirectory {
 public:
  /// Makes the hidden folder, and the folders above it where needed. Throws Error, naming the path and the
  /// system's reason; UsageError when `path` has no file name.
  explicit AtomicDirectory(std::filesystem::path path);
  /// The same with a hidden folder of the caller's choice on the same file system, who alone uses it: what a
  /// killed process has left in it goes.
  AtomicDirectory(std::filesystem::path path, std::filesystem::path temporary);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Where its files are written to until the commit.
  const std::filesystem::path& path() const noexcept { return temporary_; }

  /// Makes the folder appear. Throws Error as the constructor does, UsageError for a second commit.
  void commit();

 private:
  int take_name();
  void fail_for(int error, const char* what);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

/// Removes a folder so that nobody sees it half removed under its name: it is renamed to a hidden name first.
/// Throws Error. *Local*.
void remove_folder(const std::filesystem::path& path);

/// Removes what killed processes left in `folder`: hidden files and folders `.lockstep-*.tmp`. Only for a
/// folder in which nobody else writes now, see DirectoryLock. What cannot be removed stays. *Local*.
void remove_leftovers(const std::filesystem::path& folder) noexcept;

}  // namespace lockstep
