#include "lockstep/core/atomic_directory.hpp"

#include <stdio.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::parent_of;
using file_system::reason;
using file_system::temporary_name;

/// Gives `path` a hidden name, which it returns; errno in `error`, 0 when it worked.
fs::path hide(const fs::path& path, int& error) {
  fs::path hidden;
  error = EEXIST;
  for (int tried = 0; tried < file_system::kNamesTried && error == EEXIST; ++tried) {
    hidden = temporary_name(path);
    error = ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, hidden.c_str(), RENAME_NOREPLACE) < 0 ? errno : 0;
    // File systems without that flag: the name is new but for another host with the same process number.
    if (error == EINVAL) error = ::rename(path.c_str(), hidden.c_str()) < 0 ? errno : 0;
  }
  return hidden;
}

void remove_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

AtomicDirectory::AtomicDirectory(fs::path path) : path_(std::move(path)) {
  if (!path_.has_filename())
    throw UsageError("cannot make a folder named '" + path_.string() + "': the name ends in a slash.");
  std::error_code failure;
  fs::create_directories(parent_of(path_), failure);
  if (failure) fail("the folder above it cannot be made", failure.value());
  int error = EEXIST;
  for (int tried = 0; tried < file_system::kNamesTried && error == EEXIST; ++tried) {
    temporary_ = temporary_name(path_);
    error = ::mkdir(temporary_.c_str(), 0777) < 0 ? errno : 0;
  }
  if (error == 0) return;
  temporary_.clear();
  fail("cannot make a temporary folder beside it", error);
}

AtomicDirectory::~AtomicDirectory() { discard(); }

void AtomicDirectory::commit() {
  if (temporary_.empty()) throw UsageError("the folder '" + path_.string() + "' was committed already.");
  int error = file_system::sync_folder(temporary_);
  if (error != 0) fail("bringing it to the disk failed", error);
  error = take_name();
  if (error != 0) fail("giving it its name failed", error);
  discard();  // What had the name before, if anything.
  error = file_system::sync_folder(parent_of(path_));
  if (error != 0) fail("it is in place, but bringing the folder above it to the disk failed", error);
}

/// errno, or 0. Afterwards `temporary_` is the name of what had the name before, or empty.
int AtomicDirectory::take_name() {
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return 0;
  fs::path before;
  int error = 0;
  if (errno != ENOENT && fs::exists(fs::symlink_status(path_))) before = hide(path_, error);
  if (error != 0) return error;
  if (::rename(temporary_.c_str(), path_.c_str()) < 0) return errno;
  temporary_ = before;
  return 0;
}

void AtomicDirectory::fail(const char* what, int error) {
  discard();
  throw Error("cannot write the folder '" + path_.string() + "': " + what + ": " + reason(error) +
              ". Check the folder above it, the free space and the permissions.");
}

void AtomicDirectory::discard() noexcept {
  if (!temporary_.empty()) remove_quietly(temporary_);
  temporary_.clear();
}

void remove_folder(const fs::path& path) {
  int error = 0;
  const fs::path hidden = hide(path, error);
  std::error_code failure(error, std::generic_category());
  if (!failure) fs::remove_all(hidden, failure);
  if (failure) throw Error("cannot remove the folder '" + path.string() + "': " + failure.message() + ".");
}

void remove_leftovers(const fs::path& folder) noexcept {
  try {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (file_system::is_temporary_name(entry.path().filename().string())) found.push_back(entry.path());
    }
    for (const auto& path : found) remove_quietly(path);
  } catch (const std::exception&) {
    return;  // A folder that cannot be read now is swept the next time.
  }
}

}  // namespace lockstep
