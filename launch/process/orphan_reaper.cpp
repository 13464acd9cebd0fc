#include "process/orphan_reaper.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "core/runtime/process_handle.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {
namespace {

constexpr const char* kVariable = "LOCKSTEP_LAUNCHERS";

/// Whether the variable of that process has the word. Another user's environment cannot be read.
bool has_word(pid_t process, const std::string& word) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string name = std::string(kVariable) + "=";
  const auto begin = text.starts_with(name) ? 0 : text.find('\0' + name);
  if (begin == std::string::npos) return false;
  return text.substr(begin, text.find('\0', begin + 1) - begin).find(word) != std::string::npos;
}

/// An orphan reaper of a launcher within a rank ends by itself, when it has done what it is there for.
bool is_orphan_reaper(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  return name == kOrphanReaperName;
}

/// Whether it was one of those. Its handle is held meanwhile, so that the process that was looked at is the
/// one that gets the signal.
bool kill_if_tagged(pid_t process, const std::string& word) {
  const ProcessHandle handle(process);
  return has_word(process, word) && !is_orphan_reaper(process) && handle.signal(SIGKILL);
}

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

JobTag::JobTag(const Environment& environment) : word_(random_id(16)) {
  const std::string outer = find_variable(environment, kVariable).value_or("");
  all_ = (outer.empty() ? "" : outer + ":") + word_;
}

void JobTag::add_to(Environment& environment) const { environment[kVariable] = all_; }

void kill_tagged(const std::string& word, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const timespec pause{0, 5'000'000};
  for (bool found = true; found && std::chrono::steady_clock::now() < deadline;) {
    found = false;
    for (const pid_t process : all_processes()) {
      if (process != getpid() && kill_if_tagged(process, word)) found = true;
    }
    if (found) nanosleep(&pause, nullptr);
  }
}

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
