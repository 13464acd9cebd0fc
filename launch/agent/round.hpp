#pragma once

#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/heartbeat_monitor.hpp"
#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "failure/failure_analysis.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "process/process_supervisor.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {

/// The ranks of this node in one round, from their start until none of their processes is left. They are
/// stopped by a signal, and killed after the shutdown timeout. The launcher becomes a "subreaper":
/// descendants whose parent has ended become its children, so none is lost.
class Round {
 public:
  /// The references must outlive the round.
  Round(const LaunchConfig& config, const Environment& environment, const WorkerSpec& spec,
        const ProcessSupervisor& supervisor, LogForwarder& forwarder);
  /// Kills running processes.
  ~Round();
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  /// To be called before the first rank is started. Throws lockstep::Error if this host cannot start any (a
  /// full disk, a missing script).
  void prepare();
  /// Starts the next rank; `is_starting` must be false. Returns false if there is none, or if the ranks are
  /// being stopped. Both functions throw SpawnError if the program cannot be started, and other exceptions if
  /// this host cannot (too many open files); the ranks already started end with this object.
  bool start_next();
  /// Whether the rank that was started last has not begun its program yet. Waits at most 20 ms, in which most
  /// programs begin. To be called again when `start_descriptor` becomes readable, and at `deadline`.
  bool is_starting();
  /// -1: all have begun.
  int start_descriptor() const noexcept { return spawned_ ? spawned_->descriptor() : -1; }

  /// Reaps all children that have ended. Returns whether one of them is the round's first failure.
  bool reap();
  /// Those ranks and spares whose processes have ended since the last call. The round does not end before it
  /// is known what becomes of these ranks: replace(), leave_ended(), or a stop.
  std::vector<RankEnded> take_ended();
  /// No other process takes the place of the rank's.
  void leave_ended(int rank);
  /// Another process takes the place of the rank's, which has ended; what that left behind is killed. It is
  /// started by start_replacements(), to be called after each event, unless it is a spare that was started
  /// before. If the program cannot be started, the process is among the next ended ones. A spare is started
  /// beside the rank.
  void replace(const ReplaceRank& rank);
  void start_replacements();
  /// Kills that process, or that spare, if it runs.
  void kill_rank(const KillRank& rank);
  /// No rank needs them any more.
  void kill_spares();
  /// Forwards a signal that does not end ranks. SIGUSR1 and SIGUSR2 go to those processes of a rank that
  /// handle them, once there is one: they would end a program that is not ready yet.
  void pass_on(int signal_number);
  /// Forwards a signal that ends ranks; the shutdown timeout starts with the first one.
  void stop(int signal_number);
  /// The same with SIGTERM after a failure, with kTerminateNow: ranks that save their state on SIGTERM do not
  /// try.
  void stop_at_once();
  bool is_stopping() const { return stage_ != Stage::running; }
  /// Sends SIGKILL to ranks, their process groups and orphans.
  void kill();
  /// To be called at `deadline()`. Returns the status of the ranks if it is due; otherwise an empty list.
  std::vector<RankStatus> on_deadline();
  net::Deadline deadline() const;
  std::vector<RankStatus> statuses() const { return monitor_->statuses(workers_); }
  /// Whether the global rank is one of this node's.
  bool has_rank(int rank) const;
  /// Makes this rank of this node the round's first failure, because of which the job ends. False if there is
  /// one already, or if the ranks are being stopped.
  bool mark_hung(int rank, const std::string& text);

  std::vector<StackTarget> stack_targets() const { return monitor_->stack_targets(workers_); }
  std::optional<std::uint64_t> best_step() const { return monitor_->best_step(); }

  /// False also if they cannot be killed.
  bool ranks_run() const { return (any_rank_runs() || is_replacing() || is_undecided()) && !abandoned_; }
  /// Asks processes that outlived the ranks to end. False if none is left, or if they cannot be killed.
  bool end_orphans();

  bool succeeded() const;
  /// Every rank that did not succeed has saved its state and exited.
  bool preempted() const;
  /// The record of the rank that failed first, which must exist.
  ProcessFailure first_failure() const { return record(workers_[*first_failure_], new_oom_kills()); }
  std::vector<ProcessFailure> records() const;
  /// After a start has thrown: the record of the rank that was not started.
  ProcessFailure not_started(const std::exception& error) const;
  const std::vector<Worker>& workers() const noexcept { return workers_; }

 private:
  enum class Stage { running, stopping, killing };
  /// A signal that waits until a rank handles it.
  struct HeldSignal {
    /// The rank's processes that block all signals, and for how many looks in succession.
    std::map<pid_t, int> looks;
    /// Whether the console has said so.
    bool reported = false;
  };

  /// `replaces`: see ReplaceRank; empty for the first process of a rank.
  void spawn(Worker& worker, const std::string& heartbeat_file, const std::string& replaces);
  /// The process that was started last.
  Worker& starting();
  bool is_replacing() const;
  /// Whether a rank has ended, and may be replaced.
  bool is_undecided() const { return stage_ == Stage::running && !undecided_.empty(); }
  void start_spare(const ReplaceRank& rank);
  /// Whether the rank has had a spare of that number, which now has its place, or has ended.
  bool call_spare(const ReplaceRank& rank);
  /// What the rank's last process has left behind must not disturb its successor.
  void clear_place(std::size_t index);
  /// A process that could not be started ends with this status.
  void end_unstarted(Worker& worker, int status);
  /// That of the worker's process.
  WorkerSpec spec_of(const Worker& worker) const;
  /// Sends a signal to the process group of every running rank. `stopping`: it asks the ranks to end.
  void signal(int number, bool stopping);
  bool any_rank_runs() const;
  /// Whether a rank, or a process that ranks left behind, still runs.
  bool has_children() const;
  /// Sends it to the processes of the rank's group that handle it; false if there are none yet.
  bool hand_over(const Worker& worker, int number, HeldSignal& held) const;
  void hand_over_held();
  /// Whether an orphan is one of this job's, and not a child that this process had before, or an orphan of
  /// somebody else's in a container whose PID 1 it is.
  bool is_of_job(pid_t pid) const;
  /// Running processes that ranks left behind. Reads the status of every process of the host.
  std::vector<pid_t> orphans() const;
  void on_shutdown_deadline();
  void report_saved_ranks();
  void begin_stopping();
  ProcessFailure record_for(int local_rank) const;
  ProcessFailure record(const Worker& worker, std::optional<std::int64_t> kills) const;
  /// Processes of this job's cgroup that the OOM killer has ended since the round began, if known.
  std::optional<std::int64_t> new_oom_kills() const;

  const LaunchConfig& config_;
  const Environment& environment_;
  const WorkerSpec& spec_;
  const ProcessSupervisor& supervisor_;
  LogForwarder& forwarder_;
  std::vector<Worker> workers_;
  /// The rank that was started last, until its program has begun, and its index.
  std::optional<SpawnedProcess> spawned_;
  std::size_t starting_ = 0;
  bool starts_spare_ = false;
  /// Those that wait, or have ended and are to be reported; and the ranks and numbers of those that were.
  std::list<Worker> spares_;
  std::set<std::pair<int, int>> ended_spares_;
  /// The ranks, by index: those that have ended since take_ended(), and those of which it is not known
  /// whether they are replaced. Then processes to be started, and the groups of those that were replaced.
  std::vector<std::size_t> ended_;
  std::set<std::size_t> undecided_;
  std::vector<ReplaceRank> replacements_;
  std::vector<pid_t> replaced_;
  /// The orphans that got SIGTERM.
  std::set<pid_t> asked_;
  /// By the index of the rank's worker and the signal's number.
  std::map<std::pair<std::size_t, int>, HeldSignal> held_;
  /// When to look for handlers again, and for orphans: neither announces itself.
  net::Deadline next_poll_ = net::Deadline::max();
  /// --keep-daemons: until when processes of the ranks' sessions may still leave them.
  std::optional<net::Deadline> leave_by_;
  Stage stage_ = Stage::running;
  net::Deadline shutdown_deadline_ = net::Deadline::max();
  std::optional<HeartbeatMonitor> monitor_;
  /// When to read the heartbeats.
  net::Deadline next_look_ = net::Deadline::max();
  /// Why the round was ended although no rank had failed.
  std::string hang_text_;
  std::optional<std::size_t> first_failure_;
  /// The kernel's OOM count at the start of the round.
  std::optional<std::int64_t> oom_kills_before_;
  bool abandoned_ = false;
  /// When to report ranks that have saved their state and exited while others go on.
  std::optional<net::Deadline> saved_report_;
};

}  // namespace lockstep::launch
