#include "process/process_supervisor.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "core/file_system.hpp"
#include "core/runtime/process_handle.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using file_system::uninterrupted;
using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "LOCKSTEP_LAUNCHERS";
constexpr const char* kProcessName = "lockstep-reaper";
/// The message that ends an orphan reaper; no process group has this number.
constexpr pid_t kFinish = 0;

/// Another user's environment cannot be read.
bool has_tag(pid_t process, const std::string& tag) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string name = std::string(kVariable) + "=";
  const auto begin = text.starts_with(name) ? 0 : text.find('\0' + name);
  if (begin == std::string::npos) return false;
  return text.substr(begin, text.find('\0', begin + 1) - begin).find(tag) != std::string::npos;
}

/// Returns whether it was tagged. An orphan reaper of a launcher within a rank ends by itself, when it has
/// done its work. The handle is held meanwhile, so that the process that was looked at gets the signal.
bool kill_if_tagged(pid_t process, const std::string& tag) {
  const ProcessHandle handle(process);
  return has_tag(process, tag) && first_line(fmt::format("/proc/{}/comm", process)) != kProcessName &&
         handle.signal(SIGKILL);
}

/// Again and again until there is none, as what is killed may have started another one. What starts processes
/// faster than they are killed for so long is left to others.
void kill_tagged(const std::string& tag) {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  const timespec pause{0, 5'000'000};
  for (bool found = true; found && Clock::now() < deadline;) {
    found = false;
    for (const pid_t process : all_processes()) {
      if (process != getpid() && kill_if_tagged(process, tag)) found = true;
    }
    if (found) nanosleep(&pause, nullptr);
  }
}

/// The life of the orphan reaper. Never returns.
[[noreturn]] void await_launchers_end(int pipe, const std::string& folder, const std::string& tag) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, kProcessName);
  std::set<pid_t> groups;
  pid_t message = 0;
  // The pipe ends when the launcher is dead.
  while (uninterrupted([&] { return read(pipe, &message, sizeof message); }) == sizeof message) {
    if (message == kFinish) _exit(0);
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) killpg(group, SIGKILL);
  if (!tag.empty()) kill_tagged(tag);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

JobTag::JobTag(const Environment& environment) : value_(random_id(16)) {
  const std::string outer = find_variable(environment, kVariable).value_or("");
  all_ = (outer.empty() ? "" : outer + ":") + value_;
}

void JobTag::add_to(Environment& environment) const { environment[kVariable] = all_; }

TemporaryFolder::TemporaryFolder(const Environment& environment) {
  std::string parent = find_variable(environment, "TMPDIR").value_or("");
  if (parent.empty()) parent = "/tmp";
  path_ = std::filesystem::absolute(parent) / "lockstep_XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) {
    throw Error(
        fmt::format("cannot make a temporary folder in '{}': {}. Set TMPDIR to a folder that can be written.",
                    parent, std::strerror(errno)));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

OrphanReaper::OrphanReaper(const std::string& folder, const std::string& tag) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot open a pipe: {}.", std::strerror(errno)));
  const net::FileDescriptor reapers_end(ends[0]);
  pipe_ = net::FileDescriptor(ends[1]);
  // fork() but without SIGCHLD at its end; all arguments are zero, so their order, which differs between
  // architectures, does not matter.
  pid_ = static_cast<pid_t>(syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL));
  if (pid_ < 0) {
    throw Error(
        fmt::format("cannot start the orphan reaper: {}. Look at the limits on processes (ulimit -u).",
                    std::strerror(errno)));
  }
  if (pid_ > 0) return;
  pipe_.reset();
  await_launchers_end(reapers_end.get(), folder, tag);
}

OrphanReaper::~OrphanReaper() {
  send(kFinish);
  pipe_.reset();
  waitpid(pid_, nullptr, __WCLONE);
}

void OrphanReaper::send(pid_t message) const noexcept {
  uninterrupted([&] { return write(pipe_.get(), &message, sizeof message); });
}

}  // namespace lockstep::launch
