#include "process/worker_group.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>

#include "core/runtime/process_handle.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Pointers into `words`, as exec takes them.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment) result.push_back(name + "=" + value);
  return result;
}

/// Runs in the child. Never returns.
[[noreturn]] void become(char** arguments, char** environment, int report, pid_t launcher,
                         const std::function<void()>& in_child) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above.
  if (getppid() != launcher) _exit(1);
  in_child();
  // What the launcher inherited is not the rank's.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written < 0 ? 1 : 127);
}

SpawnError exec_error(const std::string& program, int error) {
  const std::string head = fmt::format("cannot start '{}': ", program);
  if (error == ENOENT && program.find('/') != std::string::npos && access(program.c_str(), F_OK) == 0) {
    return {
        head + "the file is there, but the interpreter that its first line (or its ELF header) names is not.",
        127};
  }
  if (error == ENOENT) {
    return {head + "no such program. Expected a path (./name for one in this folder) or a command on PATH.",
            127};
  }
  if (error == EACCES) return {head + "it is not executable (chmod +x makes it so) or it is a folder.", 126};
  return {head + std::strerror(error) + ".", 126};
}

}  // namespace

void replace_process(std::vector<std::string> command, const Environment& environment) {
  auto variables = assignments(environment);
  execvpe(command.front().c_str(), pointers(command).data(), pointers(variables).data());
  throw exec_error(command.front(), errno);
}

void open_standard_descriptors() noexcept {
  // The lowest free number is used, so they are filled in order. Without close-on-exec, as streams are.
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR);
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) close(opened);
}

SpawnedProcess::SpawnedProcess(std::vector<std::string> command, const Environment& environment,
                               const std::function<void()>& in_child)
    : program_(command.front()), deadline_(net::Clock::now() + kExecTimeout) {
  auto variables = assignments(environment);
  auto arguments = pointers(command);
  auto variable_pointers = pointers(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw formatted<Error>("cannot open a pipe: {}.", std::strerror(errno));
  report_ = net::FileDescriptor(ends[0]);
  const net::FileDescriptor child_end(ends[1]);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    throw SpawnError(fmt::format("cannot start '{}': fork: {}. Look at the limits on processes (ulimit -u, "
                                 "pids.max of the job's cgroup) and memory.",
                                 program_, std::strerror(errno)),
                     126);
  }
  if (pid_ == 0) become(arguments.data(), variable_pointers.data(), child_end.get(), launcher, in_child);
}

bool SpawnedProcess::has_begun(std::chrono::milliseconds limit) {
  if (!report_) return true;
  if (!net::await_ready(report_.get(), POLLIN, net::Clock::now() + limit)) {
    if (net::Clock::now() < deadline_) return false;
    // A process that hangs in the kernel dies when the call returns; it is reaped with the other children
    // then.
    kill(pid_, SIGKILL);
    throw SpawnError(fmt::format("cannot start '{}': its file could not be read within {} s. Look at the "
                                 "file system that it (or its interpreter) is on.",
                                 program_, kExecTimeout.count()),
                     126);
  }
  int error = 0;
  // A successful exec has closed the pipe.
  const bool failed = read(report_.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error);
  report_.reset();
  if (!failed) return true;
  waitpid(pid_, nullptr, 0);
  throw exec_error(program_, error);
}

void WorkerOutput::apply() const noexcept {
  const auto put = [](const net::FileDescriptor& file, int place) {
    // dup2 of a descriptor onto itself would leave it close-on-exec.
    if (file.get() == place) {
      fcntl(place, F_SETFD, 0);
    } else if (file) {
      dup2(file.get(), place);
    }
  };
  put(out, STDOUT_FILENO);
  put(err, STDERR_FILENO);
}

WorkerGroup::WorkerGroup(const SignalFd& signals, const OrphanReaper& reaper, bool keep_daemons)
    : signals_(signals), reaper_(reaper), keep_daemons_(keep_daemons) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

WorkerGroup::~WorkerGroup() {
  // Processes still run only after an exception. The time is limited, so that a process that cannot be killed
  // (stuck in a driver) does not block the launcher.
  const auto deadline = net::Clock::now() + std::chrono::seconds(5);
  while (has_children() && net::Clock::now() < deadline) {
    kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reap();
  }
  for (const auto& worker : workers_) reaper_.release(worker.pid);
}

void WorkerGroup::start(int local_rank, const std::vector<std::string>& command,
                        const Environment& environment, const WorkerOutput& output) {
  spawned_.emplace(command, environment, [&] {
    output.apply();
    signals_.restore_in_child();
  });
  workers_.push_back({.local_rank = local_rank, .pid = spawned_->pid()});
  reaper_.watch(spawned_->pid());
}

bool WorkerGroup::is_starting() {
  // Long enough for nearly every start, so that no extra turn of the event loop is needed.
  constexpr std::chrono::milliseconds kUsual{20};
  if (!spawned_) return false;
  // If it was stopped meanwhile, waitpid tells what became of it.
  if (!workers_.back().stopped) {
    try {
      if (!spawned_->has_begun(kUsual)) return true;
    } catch (const SpawnError&) {
      reaper_.release(workers_.back().pid);
      workers_.pop_back();
      spawned_.reset();
      throw;
    }
  }
  spawned_.reset();
  return false;
}

void WorkerGroup::signal(int number, bool stopping) {
  for (auto& worker : workers_) {
    if (worker.status) continue;
    killpg(worker.pid, number);
    // A stopped (SIGSTOP) process would not handle it.
    if (stopping) killpg(worker.pid, SIGCONT);
    worker.stopped = worker.stopped || stopping;
    worker.killed = worker.killed || number == SIGKILL;
  }
}

void WorkerGroup::end_after_failure() {
  for (const auto& worker : workers_) {
    // The SIGTERM sent below merges with this one while it is pending.
    if (!worker.status) ::sigqueue(worker.pid, SIGTERM, {.sival_int = kTerminateNow});
  }
  signal(SIGTERM, true);
}

std::vector<std::size_t> WorkerGroup::reap() {
  std::vector<std::size_t> ended;
  int status = 0;
  rusage used{};
  for (pid_t pid = 0; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
    asked_.erase(pid);
    const auto is_ended = [&](const Worker& worker) { return worker.pid == pid && !worker.status; };
    const auto found = std::ranges::find_if(workers_, is_ended);
    if (found == workers_.end()) continue;
    found->status = status;
    found->ended = std::time(nullptr);
    found->peak_memory = std::int64_t{used.ru_maxrss} * 1024;
    // The group still exists if the rank left processes behind. An empty one must be released, as its number
    // may be reused.
    if (killpg(pid, 0) != 0) reaper_.release(pid);
    ended.push_back(static_cast<std::size_t>(found - workers_.begin()));
  }
  return ended;
}

bool WorkerGroup::ranks_run() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.status; });
}

bool WorkerGroup::has_children() const {
  if (keep_daemons_) return ranks_run() || !orphans().empty();
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

std::vector<pid_t> WorkerGroup::orphans() const {
  std::vector<pid_t> result = all_processes();
  std::erase_if(result, [this](pid_t pid) {
    if (process_stat(pid).parent != getpid() || pid == reaper_.pid()) return true;
    const auto is_rank = [&](const Worker& worker) { return worker.pid == pid && !worker.status; };
    // Each rank leads its own session, which contains what it starts unless that leaves.
    const bool is_daemon = std::ranges::find(workers_, getsid(pid), &Worker::pid) == workers_.end();
    return std::ranges::any_of(workers_, is_rank) || (keep_daemons_ && is_daemon);
  });
  return result;
}

void WorkerGroup::terminate_orphans() {
  for (const pid_t pid : orphans()) {
    if (asked_.insert(pid).second) ::kill(pid, SIGTERM);
  }
}

void WorkerGroup::kill() {
  signal(SIGKILL, true);
  if (!has_children()) return;
  for (const pid_t pid : orphans()) ::kill(pid, SIGKILL);
}

}  // namespace lockstep::launch
