#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace lockstep {

/// The right to be the only writer in a folder, for as long as it lives.
///
/// It is the system's advisory lock (flock) on the file `.lockstep.lock` in the folder, so it ends with the
/// process that holds it, however that ends; nothing has to be cleaned up after a crash. The file stays, and
/// says who holds the lock, or held it last. Everything is *Local*; not copied and not moved.
class DirectoryLock {
 public:
  /// Makes the folder where needed and takes the lock, waiting up to `timeout` for who holds it: a process
  /// that was killed a moment ago may still be ending. `owner` says who we are, for others' messages. Throws
  /// UsageError naming the holder when the lock is not to be had, Error when the folder cannot be written. A
  /// file system that knows no locks (ENOLCK, ENOTSUP) gives none, and that is no error.
  DirectoryLock(const std::filesystem::path& folder, const std::string& owner,
                std::chrono::milliseconds timeout = std::chrono::seconds(10));
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep
