#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "agent/heartbeat_monitor.hpp"
#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "failure/failure_analysis.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "process/process_supervisor.hpp"
#include "process/worker_group.hpp"

namespace lockstep::launch {

/// The ranks of this node in one round, from their start until none of their processes is left. They are told
/// to stop by a signal, and are killed when the shutdown timeout is over.
class Round {
 public:
  /// The references must outlive the round.
  Round(const LaunchConfig& config, const Environment& environment, const WorkerSpec& spec,
        const ProcessSupervisor& supervisor, LogForwarder& forwarder);

  /// Before the first rank. Throws lockstep::Error when this host cannot start any (a full disk, a script
  /// that is not there).
  void prepare();
  /// Starts the next rank, when `is_starting` says no; false when there is none, or the ranks are being
  /// stopped. Both throw SpawnError when the program cannot be started, and other exceptions when this host
  /// cannot (too many open files); what was started ends with this object.
  bool start_next();
  /// Whether the rank that was started last is still to begin its program. To be asked again when
  /// `start_descriptor` becomes readable, and at `deadline`.
  bool is_starting() { return group_.is_starting(); }
  int start_descriptor() const { return group_.start_descriptor(); }

  /// Takes note of processes that have ended. Returns whether that tells of the round's first failure.
  bool reap();
  /// Passes a signal on that does not end ranks.
  void pass_on(int signal_number) { group_.signal(signal_number, false); }
  /// Passes a signal on by which ranks are to end; the shutdown timeout runs from the first one.
  void stop(int signal_number);
  /// The same by SIGTERM, because the round has failed: ranks that would save their state at a SIGTERM do not
  /// try.
  void stop_at_once();
  bool is_stopping() const { return stage_ != Stage::running; }
  void kill();
  /// To be called at `deadline()`. Returns the status of the ranks when it is time to report it; else none.
  std::vector<RankStatus> on_deadline();
  net::Deadline deadline() const;
  std::vector<RankStatus> statuses() const { return monitor_->statuses(group_.workers()); }
  /// Whether the rank, by its number in the world, is one of this node's.
  bool has_rank(int rank) const;
  /// The job is ended in the name of this rank of this node: it has become the round's first failure. False
  /// when there is one already, or the ranks are being stopped.
  bool blame(int rank, const std::string& text);

  std::vector<StackTarget> stack_targets() const { return monitor_->stack_targets(group_.workers()); }
  std::optional<std::uint64_t> best_step() const { return monitor_->best_step(); }

  bool ranks_run() const { return group_.ranks_run() && !abandoned_; }
  /// Asks what ranks left behind to end; false when nothing is left, or what is left cannot be ended.
  bool end_orphans();

  bool succeeded() const;
  /// Every rank that did not succeed saved its state and ended.
  bool preempted() const;
  /// The record of the rank that failed first. There must be one.
  ProcessFailure first_failure() const { return record(workers()[*first_failure_]); }
  std::vector<ProcessFailure> records() const;
  /// After a start has thrown: the record of the rank that could not be started.
  ProcessFailure not_started(const std::exception& error) const;
  const std::vector<Worker>& workers() const noexcept { return group_.workers(); }

 private:
  enum class Stage { running, stopping, killing };

  void on_shutdown_deadline();
  void begin_stopping();
  ProcessFailure record_for(int local_rank) const;
  ProcessFailure record(const Worker& worker) const;

  const LaunchConfig& config_;
  const Environment& environment_;
  const WorkerSpec& spec_;
  const ProcessSupervisor& supervisor_;
  LogForwarder& forwarder_;
  WorkerGroup group_;
  Stage stage_ = Stage::running;
  net::Deadline shutdown_deadline_ = net::Deadline::max();
  std::optional<HeartbeatMonitor> monitor_;
  /// When to look at the heartbeats.
  net::Deadline next_look_ = net::Deadline::max();
  /// Why the round was ended though no rank had failed.
  std::string hang_text_;
  /// The rank that failed first.
  std::optional<std::size_t> first_failure_;
  /// The kernel's count when the round began.
  std::optional<std::int64_t> oom_kills_before_;
  bool abandoned_ = false;
};

}  // namespace lockstep::launch
