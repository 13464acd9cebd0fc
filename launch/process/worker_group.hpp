#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "net/file_descriptor.hpp"
#include "process/process_supervisor.hpp"

namespace lockstep::launch {

/// The program could not be started. `exit_code()` is a shell's: 127 not found, 126 found and not executable.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}

  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Opens /dev/null on those of the descriptors 0 to 2 that are closed, as after `>&-`. To be called before
/// anything else opens a file: that would become a standard stream, here and in every rank. *Local*.
void open_standard_descriptors() noexcept;

/// Makes this process the program of `command` (searched in PATH) with `environment`. Returns only by
/// throwing SpawnError. *Local*.
[[noreturn]] void replace_process(std::vector<std::string> command, const Environment& environment);

/// A process between fork and exec. It begins its program by itself, within a millisecond in most cases; on a
/// file system that hangs it may never begin, so nothing here waits for it longer than the caller says. All
/// *Local*.
class SpawnedProcess {
 public:
  /// A program whose file cannot be read within this time does not start.
  static constexpr std::chrono::seconds kExecTimeout{60};

  /// Forks a process that executes `command` (searched in PATH) with `environment` and the launcher's
  /// standard streams, as the leader of a session and process group of its own, so that it and its children
  /// can be signalled together. It is killed by the kernel when the launcher dies. `in_child` runs between
  /// fork and exec: only async-signal-safe calls. Throws SpawnError.
  SpawnedProcess(std::vector<std::string> command, const Environment& environment,
                 const std::function<void()>& in_child);

  pid_t pid() const noexcept { return pid_; }
  /// Becomes readable when the program has begun, or cannot begin.
  int descriptor() const noexcept { return report_.get(); }
  /// When `has_begun` gives up.
  net::Deadline deadline() const noexcept { return deadline_; }

  /// Waits for `limit` at most. Throws SpawnError when the program cannot be started or the deadline is over;
  /// the process is gone then, or has been sent SIGKILL.
  bool has_begun(std::chrono::milliseconds limit);

 private:
  std::string program_;
  pid_t pid_ = 0;
  net::FileDescriptor report_;
  net::Deadline deadline_;
};

/// One rank's process.
struct Worker {
  int local_rank = 0;
  pid_t pid = 0;
  /// What waitpid said; nothing while it runs.
  std::optional<int> status = {};
  /// When that was: seconds since 1970; 0: it runs.
  std::int64_t ended = 0;
  /// The most memory that it had at a time, in bytes, its children that it waited for included; 0: it runs.
  std::int64_t peak_memory = 0;
  /// It was asked to end before it did.
  bool stopped = false;
  /// SIGKILL was sent to it from here before it ended.
  bool killed = false;

  /// It was asked to stop, and says that it has saved where it is.
  bool preempted() const noexcept { return status == kPreemptedExitCode << 8; }
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
  /// Becomes readable when that may have changed, and when to ask anyway; -1 and Deadline::max(): all have
  /// begun.
  int start_descriptor() const noexcept { return spawned_ ? spawned_->descriptor() : -1; }
  net::Deadline start_deadline() const { return spawned_ ? spawned_->deadline() : net::Deadline::max(); }

  /// Sends a signal to the process group of every rank that runs. `stopping`: the ranks are to end by it.
  void signal(int number, bool stopping);
  /// SIGTERM to every rank that runs, because another has failed: with kTerminateNow, so that those that
  /// would save their state at a SIGTERM do not try.
  void end_after_failure();

  /// Takes note of every child that has ended. Returns the ranks' (indices of `workers`).
  std::vector<std::size_t> reap();

  bool ranks_run() const;
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

  const SignalFd& signals_;
  const OrphanReaper& reaper_;
  const bool keep_daemons_;
  std::vector<Worker> workers_;
  /// The rank that was started last, until it has begun its program.
  std::optional<SpawnedProcess> spawned_;
  std::set<pid_t> asked_;
};

}  // namespace lockstep::launch
