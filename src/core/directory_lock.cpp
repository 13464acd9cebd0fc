#include "lockstep/core/directory_lock.hpp"

#include <sys/file.h>

#include <array>
#include <thread>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::reason;
using file_system::uninterrupted;
using Clock = std::chrono::steady_clock;

constexpr const char* kLockName = ".lockstep.lock";
constexpr std::chrono::milliseconds kPause{50};
constexpr std::size_t kLongestOwner = 1000;

/// errno, or 0; EWOULDBLOCK when somebody else still has the lock at the deadline.
int lock_until(int descriptor, Clock::time_point deadline) {
  for (;;) {
    if (uninterrupted([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) == 0) return 0;
    if (errno != EWOULDBLOCK || Clock::now() >= deadline) return errno;
    std::this_thread::sleep_for(kPause);
  }
}

std::string owner_in(int descriptor) {
  std::array<char, kLongestOwner> text;
  const auto bytes = ::pread(descriptor, text.data(), text.size(), 0);
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : "somebody who left no name";
}

/// Only for people to read: a name that could not be written changes nothing.
void write_owner(int descriptor, const std::string& owner) {
  const std::string text = owner.substr(0, kLongestOwner);
  if (::ftruncate(descriptor, 0) == 0) {
    [[maybe_unused]] const auto written = ::pwrite(descriptor, text.data(), text.size(), 0);
  }
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& folder, const std::string& owner,
                             std::chrono::milliseconds timeout) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error("cannot make the folder '" + folder.string() + "': " + failure.message() + ".");
  const fs::path path = folder / kLockName;
  descriptor_ = uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) throw Error("cannot write '" + path.string() + "': " + reason(errno) + ".");
  const int error = lock_until(descriptor_, Clock::now() + timeout);
  if (error == 0) write_owner(descriptor_, owner);
  if (error == 0 || error == ENOLCK || error == ENOTSUP || error == ENOSYS) return;
  const std::string holder = error == EWOULDBLOCK ? owner_in(descriptor_) : "";
  ::close(descriptor_);
  if (error != EWOULDBLOCK) throw Error("cannot lock '" + path.string() + "': " + reason(error) + ".");
  throw UsageError("the folder '" + folder.string() + "' is in use by " + holder +
                   ". Two jobs must not write into one folder: end that job, or name another folder.");
}

DirectoryLock::~DirectoryLock() { ::close(descriptor_); }

}  // namespace lockstep
