#pragma once

#include <fmt/core.h>
#include <sys/stat.h>

#include <string>

namespace lockstep {

/// Identifies a version of a file. Programs can set a file's mtime back, but not its ctime. Times are those
/// of the file system, so all hosts agree on them.
inline std::string file_stamp(const struct stat& status) {
  return fmt::format("inode {} bytes {} mtime {}.{:09} ctime {}.{:09}", status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

}  // namespace lockstep
