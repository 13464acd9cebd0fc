#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"
#include "net/file_descriptor.hpp"
#include "process/process_supervisor.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {

/// One rank's process.
struct Worker {
  int local_rank = 0;
  pid_t pid = 0;
  /// What waitpid said; nothing while it runs.
  std::optional<int> status;
  /// When that was: seconds since 1970; 0: it runs.
  std::int64_t ended = 0;
  /// The most memory that it had at a time, in bytes, its children that it waited for included; 0: it runs.
  std::int64_t peak_memory = 0;
  /// It was asked to end before it did.
  bool stopped = false;
  /// SIGKILL was sent to it from here before it ended.
  bool killed = false;

  /// It was asked to stop, and says that it has saved where it is.
  bool preempted() const noexcept {
    return status && WIFEXITED(*status) && WEXITSTATUS(*status) == kPreemptedExitCode;
  }
  /// It ended by itself, and neither with success nor because it was asked to stop.
  bool failed() const noexcept { return status && *status != 0 && !stopped && !preempted(); }
};

/// What a rank's standard output and standard error are to be; empty: the launcher's own.
struct WorkerOutput {
  net::FileDescriptor out;
  net::FileDescriptor err;

  /// In the child, before exec: puts them in place. Async-signal-safe.
  void apply() const noexcept;
};

/// The processes of one round, and whatever they leave behind. The launcher is made the "subreaper", so
/// every descendant whose parent is gone becomes its child, and none can hide.
class WorkerGroup {
 public:
  /// Both must outlive the group. `keep_daemons`: what is in a session that is no rank's belongs to nobody.
  WorkerGroup(const SignalFd& signals, const OrphanReaper& reaper, bool keep_daemons);
  /// Kills what still runs.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  /// Forks the next rank, which begins its program by itself: `is_starting` says whether that is still to
  /// come. One rank at a time. Throws SpawnError.
  void start(int local_rank, const std::vector<std::string>& command, const Environment& environment,
             const WorkerOutput& output);
  /// Whether the rank that was started last has not begun its program yet. Returns at once but for the few
  /// milliseconds that this takes on a healthy host. Throws SpawnError when it cannot begin.
  bool is_starting();
  /// Becomes readable when that may have changed, and when to ask anyway; -1 and time_point::max(): all have
  /// begun.
  int start_descriptor() const noexcept { return spawned_ ? spawned_->descriptor() : -1; }
  SignalFd::Clock::time_point start_deadline() const {
    return spawned_ ? spawned_->deadline() : SignalFd::Clock::time_point::max();
  }

  /// Sends a signal to the process group of every rank that runs. `stopping`: the ranks are to end by it.
  void signal(int number, bool stopping);
  /// SIGTERM to every rank that runs, because another has failed: with kTerminateNow, so that those that
  /// would save their state at a SIGTERM do not try.
  void end_after_failure();

  /// Takes note of every child that has ended. Returns the ranks' (indices of `workers`).
  std::vector<std::size_t> reap();

  int running() const;
  /// Whether a rank or anything that ranks left behind still runs.
  bool has_children() const;
  /// Sends SIGTERM to the orphans that have not had it yet.
  void terminate_orphans();
  /// SIGKILL to everything: ranks, their groups, orphans.
  void kill();

  const std::vector<Worker>& workers() const noexcept { return workers_; }

 private:
  /// What ranks left behind and still runs. Costs a look at every process of the host.
  std::vector<pid_t> orphans() const;
  bool is_daemon(pid_t process) const;

  const SignalFd& signals_;
  const OrphanReaper& reaper_;
  const bool keep_daemons_;
  std::vector<Worker> workers_;
  /// The rank that was started last, until it has begun its program.
  std::optional<SpawnedProcess> spawned_;
  std::set<pid_t> asked_;
};

}  // namespace lockstep::launch
