#include "core/atomic_directory.hpp"

#include <fmt/core.h>
#include <stdio.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::make_hidden;
using file_system::parent_of;
using file_system::reason;
using file_system::sync_folder;

/// Renames `path` to a hidden name. Returns errno, or 0.
int hide(const fs::path& path, fs::path& hidden) {
  return make_hidden(path, hidden, [&](const fs::path& name) {
    if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) == 0) return true;
    // The file system does not support the flag: the name is unused, unless another host has a process with
    // this pid.
    return errno == EINVAL && ::rename(path.c_str(), name.c_str()) == 0;
  });
}

void remove_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

AtomicDirectory::AtomicDirectory(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename())
    throw UsageError(
        fmt::format("cannot create a folder named '{}': the name ends in a slash.", path_.string()));
  std::error_code failure;
  fs::create_directories(parent_of(path_), failure);
  fail_for(failure.value(), "the folder above it cannot be made");
  const auto make = [](const fs::path& name) { return ::mkdir(name.c_str(), 0777) == 0; };
  fail_for(make_hidden(path_, temporary_, make), "cannot make a temporary folder beside it");
}

AtomicDirectory::AtomicDirectory(fs::path path, fs::path temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {
  std::error_code failure;
  fs::remove_all(temporary_, failure);
  if (!failure) fs::create_directories(temporary_, failure);
  fail_for(failure.value(), "the folder that it is made in cannot be made");
}

AtomicDirectory::~AtomicDirectory() { discard(); }

void AtomicDirectory::commit() {
  if (temporary_.empty())
    throw UsageError(fmt::format("the folder '{}' was committed already.", path_.string()));
  fail_for(sync_folder(temporary_), "flushing it to the disk failed");
  fail_for(take_name(), "renaming it failed");
  discard();  // The replaced folder, if any.
  fail_for(sync_folder(parent_of(path_)),
           "it is in place, but flushing the folder above it to the disk failed");
}

/// Returns errno, or 0. Afterwards `temporary_` is the replaced folder, or empty.
int AtomicDirectory::take_name() {
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return 0;
  fs::path before;
  int error = 0;
  if (errno != ENOENT && fs::exists(fs::symlink_status(path_))) error = hide(path_, before);
  if (error != 0) return error;
  if (::rename(temporary_.c_str(), path_.c_str()) < 0) return errno;
  temporary_ = before;
  return 0;
}

/// Does nothing if `error` is 0.
void AtomicDirectory::fail_for(int error, const char* what) {
  if (error == 0) return;
  discard();
  throw Error(fmt::format(
      "cannot write the folder '{}': {}: {}. Check the folder above it, the free space and the permissions.",
      path_.string(), what, reason(error)));
}

void AtomicDirectory::discard() noexcept {
  if (!temporary_.empty()) remove_quietly(temporary_);
  temporary_.clear();
}

void remove_folder(const fs::path& path) {
  fs::path hidden;
  std::error_code failure(hide(path, hidden), std::generic_category());
  if (!failure) fs::remove_all(hidden, failure);
  if (failure) {
    throw Error(fmt::format("cannot remove the folder '{}': {}.", path.string(), failure.message()));
  }
}

void remove_leftovers(const fs::path& folder) noexcept {
  try {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".lockstep-") && name.ends_with(".tmp")) found.push_back(entry.path());
    }
    for (const auto& path : found) remove_quietly(path);
  } catch (const std::exception&) {
    return;  // It is cleaned up the next time.
  }
}

}  // namespace lockstep
