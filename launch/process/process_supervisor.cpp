#include "process/process_supervisor.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "core/file_system.hpp"
#include "core/runtime/process_handle.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

constexpr int kTaken[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

bool is_ignored(int signal_number) {
  struct sigaction action {};
  return sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t taken_signals(const std::vector<int>& end_signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kTaken) sigaddset(&set, number);
  for (const int number : end_signals) sigaddset(&set, number);
  sigaddset(&set, stacks_request());
  if (is_ignored(SIGHUP)) sigdelset(&set, SIGHUP);
  return set;
}

timespec until(net::Deadline deadline) {
  const auto left = std::max(deadline - net::Clock::now(), net::Clock::duration::zero());
  return {left / std::chrono::seconds(1), (left % std::chrono::seconds(1)).count()};
}

[[noreturn]] void fail_to_watch(const char* what) {
  throw formatted<Error>("cannot watch signals: {}: {}.", what, std::strerror(errno));
}

using file_system::uninterrupted;

/// Why no small file can be written in the folder; empty: one can.
std::string try_to_write(const std::string& folder) {
  constexpr std::size_t kSize = 16384;  // A full file system may still make empty files.
  std::string path = folder + "/lockstep_XXXXXX";
  const net::FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (!file) return std::strerror(errno);
  rlimit limit{};  // Of this process, whatever the folder: a longer file would be a signal.
  getrlimit(RLIMIT_FSIZE, &limit);
  const std::string text(std::min<std::size_t>(kSize, limit.rlim_cur), '\0');
  const bool written = uninterrupted([&] { return write(file.get(), text.data(), text.size()); }) ==
                       static_cast<ssize_t>(text.size());
  const std::string failure = written ? "" : std::strerror(errno == 0 ? ENOSPC : errno);
  unlink(path.c_str());
  return failure;
}

constexpr const char* kVariable = "LOCKSTEP_LAUNCHERS";
constexpr const char* kProcessName = "lockstep-reaper";
/// The message that ends an orphan reaper; not a valid process group.
constexpr pid_t kFinish = 0;

/// False for other users' processes, whose environment cannot be read.
bool is_tagged(pid_t process, const std::string& tag) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string name = std::string(kVariable) + "=";
  const auto begin = text.starts_with(name) ? 0 : text.find('\0' + name);
  if (begin == std::string::npos) return false;
  return text.substr(begin, text.find('\0', begin + 1) - begin).find(tag) != std::string::npos;
}

/// Returns whether it was killed. The orphan reaper of a launcher within a rank is spared; it ends by itself
/// when its work is done. The handle ensures that the signal goes to the process that was checked.
bool kill_if_tagged(pid_t process, const std::string& tag) {
  const ProcessHandle handle(process);
  return is_tagged(process, tag) && first_line(fmt::format("/proc/{}/comm", process)) != kProcessName &&
         handle.signal(SIGKILL);
}

/// Repeats until none is left, as a killed process may have started another one. Gives up after 10 s; for the
/// reaper, which has no second thread that RunningClock would need.
void kill_tagged(const std::string& tag) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  for (bool found = true; found && Clock::now() < deadline;) {
    found = false;
    for (const pid_t process : all_processes()) {
      if (process != getpid() && kill_if_tagged(process, tag)) found = true;
    }
    if (found) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// The main function of the orphan reaper. Never returns.
[[noreturn]] void await_launchers_end(int pipe, const std::string& folder, const std::string& tag) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, kProcessName);
  std::set<pid_t> groups;
  pid_t message = 0;
  // The pipe is closed when the launcher was killed.
  bool killed = true;
  while (killed && uninterrupted([&] { return read(pipe, &message, sizeof message); }) == sizeof message) {
    killed = message != kFinish;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) {
    if (killed) killpg(group, SIGKILL);
  }
  if (killed && !tag.empty()) kill_tagged(tag);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

SignalFd::SignalFd(std::vector<int> end_signals) : end_signals_(std::move(end_signals)) {
  const sigset_t set = taken_signals(end_signals_);
  // If they were inherited as ignored, children would be reaped automatically, and ranks would not get the
  // other signals.
  for (int number = 1; number < SIGRTMIN; ++number) {
    if (sigismember(&set, number) == 1) std::signal(number, SIG_DFL);
  }
  if (sigprocmask(SIG_BLOCK, &set, &original_mask_) != 0) fail_to_watch("sigprocmask");
  descriptor_ = net::FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) fail_to_watch("signalfd");
  // A closed standard error must not end the launcher before the ranks have ended.
  original_pipe_action_ = std::signal(SIGPIPE, SIG_IGN);
  // Nor must a log file that reaches the limit on file sizes.
  original_size_action_ = std::signal(SIGXFSZ, SIG_IGN);
}

SignalFd::~SignalFd() {
  // A late signal that was for the ranks, or a request, would otherwise end the process.
  for (const int number : {SIGUSR1, SIGUSR2, stacks_request()}) {
    if (!ends_job(number)) std::signal(number, SIG_IGN);
  }
  restore_in_child();
}

void SignalFd::restore_in_child() const noexcept {
  std::signal(SIGPIPE, original_pipe_action_);
  std::signal(SIGXFSZ, original_size_action_);
  sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

int SignalFd::wait(net::Deadline deadline, const std::vector<int>& inputs) {
  std::vector<pollfd> entries{{descriptor_.get(), POLLIN, 0}};
  for (const int input : inputs) entries.push_back({input, POLLIN, 0});
  for (;;) {
    signalfd_siginfo info{};
    if (read(descriptor_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      return static_cast<int>(info.ssi_signo);
    if (net::Clock::now() >= deadline) return 0;
    // In nanoseconds: rounding up to milliseconds would slow down the launcher's end, a series of short
    // waits.
    const timespec left = until(deadline);
    if (ppoll(entries.data(), entries.size(), &left, nullptr) < 0 && errno != EINTR) fail_to_watch("ppoll");
    // Signals first: continuous output of ranks must not delay them.
    const auto is_ready = [](const pollfd& entry) { return entry.revents != 0; };
    if (entries[0].revents == 0 && std::any_of(entries.begin() + 1, entries.end(), is_ready)) return 0;
  }
}

// The C library reserves the first real-time signals, so SIGRTMIN is known only at run time.
int stacks_request() noexcept { return SIGRTMIN + 4; }

bool SignalFd::ends_job(int signal_number) const noexcept {
  return std::find(end_signals_.begin(), end_signals_.end(), signal_number) != end_signals_.end();
}

std::filesystem::path temporary_parent(const Environment& environment, std::vector<std::string>& notices) {
  std::vector<std::string> folders{"/tmp", "/var/tmp", "/dev/shm", "."};
  const std::string wanted = find_variable(environment, "TMPDIR").value_or("");
  if (!wanted.empty()) folders.insert(folders.begin(), wanted);
  std::string failures;
  for (const auto& folder : folders) {
    const std::string failure = try_to_write(folder);
    if (failure.empty()) {
      if (!failures.empty())
        notices.push_back(fmt::format("temporary files go to '{}': {}", folder, failures));
      return std::filesystem::absolute(folder);
    }
    failures += fmt::format("{}'{}' cannot be used ({})", failures.empty() ? "" : ", ", folder, failure);
  }
  throw formatted<Error>("no folder for temporary files: {}. Set TMPDIR to a folder that can be written.",
                         failures);
}

bool had_children_or_is_init() {
  siginfo_t info{};
  return getpid() == 1 || waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

OrphanReaper::OrphanReaper(const std::filesystem::path& parent, bool keep_daemons) : tag_(random_id(16)) {
  folder_ = (parent / "lockstep_XXXXXX").string();
  if (mkdtemp(folder_.data()) == nullptr) {
    throw formatted<Error>(
        "cannot make a temporary folder in '{}': {}. Set TMPDIR to a folder that can be written.",
        parent.string(), std::strerror(errno));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw formatted<Error>("cannot open a pipe: {}.", std::strerror(errno));
  const net::FileDescriptor reapers_end(ends[0]);
  pipe_ = net::FileDescriptor(ends[1]);
  // fork() without SIGCHLD at its end. All arguments are zero, so their order, which depends on the
  // architecture, does not matter.
  pid_ = static_cast<pid_t>(syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL));
  if (pid_ < 0) {
    const int error = errno;
    rmdir(folder_.c_str());
    throw formatted<Error>("cannot start the orphan reaper: {}. Look at the limits on processes (ulimit -u).",
                           std::strerror(error));
  }
  if (pid_ > 0) return;
  pipe_.reset();
  await_launchers_end(reapers_end.get(), folder_, keep_daemons ? "" : tag_);
}

bool OrphanReaper::has_tag(pid_t process) const { return is_tagged(process, tag_); }

void OrphanReaper::add_tag(Environment& environment) const {
  const std::string outer = find_variable(environment, kVariable).value_or("");
  environment[kVariable] = (outer.empty() ? "" : outer + ":") + tag_;
}

OrphanReaper::~OrphanReaper() {
  send(kFinish);
  pipe_.reset();
  // It may have been stopped.
  kill(pid_, SIGCONT);
  waitpid(pid_, nullptr, __WCLONE);
}

void OrphanReaper::send(pid_t message) const noexcept {
  uninterrupted([&] { return write(pipe_.get(), &message, sizeof message); });
}

}  // namespace lockstep::launch
