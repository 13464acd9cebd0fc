#include "process/orphan_reaper.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "lockstep/core/error.hpp"
#include "process/job_tag.hpp"

namespace lockstep::launch {
namespace {

/// Ends the reaper's duty; no process group has this number.
constexpr pid_t kFarewell = 0;

/// What starts processes faster than they are killed for so long is left to others.
constexpr std::chrono::seconds kSweepTime{10};

/// The next message; `false` at the end of the pipe, when the launcher is dead.
bool read_message(int descriptor, pid_t& message) {
  ssize_t count = 0;
  do {
    count = read(descriptor, &message, sizeof message);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof message);
}

/// The life of the orphan reaper. Never returns.
[[noreturn]] void guard(int descriptor, const std::string& folder, const std::string& word) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, kOrphanReaperName);
  std::set<pid_t> groups;
  for (pid_t message = 0; read_message(descriptor, message);) {
    if (message == kFarewell) _exit(0);
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) killpg(group, SIGKILL);
  if (!word.empty()) kill_tagged(word, kSweepTime);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

OrphanReaper::OrphanReaper(const std::string& folder, const std::string& word) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(std::string("cannot open a pipe: ") + std::strerror(errno) + ".");
  // fork() but without SIGCHLD at its end; all arguments are zero, so their order, which differs between
  // architectures, does not matter.
  pid_ = static_cast<pid_t>(syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL));
  if (pid_ == 0) {
    close(ends[1]);
    guard(ends[0], folder, word);
  }
  const int failure = errno;
  close(ends[0]);
  pipe_ = ends[1];
  if (pid_ > 0) return;
  close(pipe_);
  throw Error(std::string("cannot start the orphan reaper: ") + std::strerror(failure) +
              ". Look at the limits on processes (ulimit -u).");
}

OrphanReaper::~OrphanReaper() {
  tell(kFarewell);
  close(pipe_);
  waitpid(pid_, nullptr, __WCLONE);
}

void OrphanReaper::tell(pid_t message) const noexcept {
  ssize_t written = 0;
  do {
    written = write(pipe_, &message, sizeof message);
  } while (written < 0 && errno == EINTR);
}

}  // namespace lockstep::launch
