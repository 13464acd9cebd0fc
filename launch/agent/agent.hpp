#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/event_log.hpp"
#include "agent/round.hpp"
#include "agent/stack_dump.hpp"
#include "agent/trace_request.hpp"
#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "metrics/job_metrics.hpp"
#include "process/process_supervisor.hpp"
#include "rendezvous/coordinator_client.hpp"

namespace lockstep::launch {

/// Runs the ranks of one node, round by round, as the job's coordinator directs. It sleeps until a rank ends,
/// a signal or a message of the coordinator arrives, or a deadline passes. One object per process, on the
/// only thread that starts processes.
///
/// - A rank fails: this is reported to the coordinator. The other ranks get SIGTERM and, after the shutdown
/// timeout, SIGKILL. The coordinator decides about a restart. If the rank had waited for others until its
/// timeout, stacks are printed first, on all nodes.
/// - With --max-recoveries, the coordinator is told of each rank that ends, and may have it replaced. The
/// node's round goes on until it has answered.
/// - A signal that ends the job (by default SIGTERM, SIGINT, SIGQUIT, SIGHUP): it is forwarded to the ranks,
/// with the same timeout, and reported to the coordinator. If another node may take this one's place
/// (--max-recoveries), it is only reported. A second one: SIGKILL at once.
/// - SIGUSR1 and SIGUSR2 are forwarded.
/// - Processes that outlive the ranks get SIGTERM, then SIGKILL.
class Agent {
 public:
  /// All must outlive the agent. `metrics` is told of the ranks; null: nobody is.
  Agent(const LaunchConfig& config, const Environment& environment, ProcessSupervisor& supervisor,
        CoordinatorClient& coordinator, Console& console, JobMetrics* metrics = nullptr);

  /// Runs the job to its end. Returns its exit status: 0, the first failure's exit code, 128 + a signal
  /// number, or 1 if the coordinator was lost. In a job of one node, throws SpawnError if the program cannot
  /// be started, and other exceptions if this host cannot start it.
  int run();

  /// Whether a second signal ended the job at once.
  bool was_forced() const noexcept { return force_kill_; }

 private:
  void run_round(const Assignment& assignment);
  /// False if the ranks cannot be started here, which is reported to the coordinator. Throws instead in a job
  /// of one node.
  bool start_ranks();
  void wait_for_event();
  void poll_coordinator(net::Deadline now);
  void on_signal(int number);
  void on_end_signal(int number);
  void on_child_ended();
  /// Whether a rank that ends may be replaced, so that the coordinator is asked.
  bool replaces_ranks() const { return spec_.assignment.max_recoveries > 0 && !round_->is_stopping(); }
  /// Whether the coordinator may have the ranks replaced on another node.
  bool may_be_relieved() const { return replaces_ranks() && spec_.assignment.group_world_size > 1; }
  void report_ended_ranks();
  void on_replace(const ReplaceRank& replace);
  void on_not_replaced(const NotReplaced& end);
  void on_kill(const KillRank& kill);
  void run_held_kill();
  void on_deadlines(net::Deadline now);
  void on_message(const CoordinatorMessage& message);
  void on_stop(const StopRound& stop);
  void stop_ranks(const StopRound& stop);
  void on_hang(const HangFound& hang);
  void stop_after_stacks();
  void stop_after_traces();
  void show_stacks_first();
  /// If they trace, the ranks write what they did last before they are stopped at once.
  void ask_for_traces();
  bool holds_stop() const { return stacks_first_ || traces_; }
  /// Runs the deferred stop, unless stacks or traces are still awaited.
  void run_held_stop();
  /// `node`: the requester; nullopt: this node.
  void ask_for_stacks(std::optional<NodeId> node);
  void pass_on_stacks(const StackDump::Answer& stacks);
  void on_finish(const Finish& finish);
  void on_lost(const std::string& why);
  void pass_on_cause();
  void send(const NodeMessage& message);
  /// Tells the coordinator and the metrics.
  void report_status(const std::vector<RankStatus>& ranks);
  void report_end();

  const LaunchConfig& config_;
  const Environment& environment_;
  ProcessSupervisor& supervisor_;
  CoordinatorClient& coordinator_;
  Console& console_;
  JobMetrics* metrics_;
  LogForwarder forwarder_;
  EventLog events_;
  WorkerSpec spec_;
  std::optional<Round> round_;
  StackDump stacks_;
  /// Stacks are printed before the ranks are stopped: they hang, or one waited for others until its timeout.
  /// The stop is deferred meanwhile.
  bool stacks_first_ = false;
  /// The same for traces, while they are awaited.
  std::optional<TraceRequest> traces_;
  std::optional<StopRound> held_stop_;
  /// A rank that hangs, until the stacks are there.
  std::optional<KillRank> held_kill_;
  /// The round that the coordinator has assigned and that has not started.
  std::optional<Assignment> next_;
  /// The exit status of the job, once it is known.
  std::optional<int> exit_code_;
  /// Why it failed: the content of a rank's error file, or a text; null: unknown.
  nlohmann::json error_;
  /// The first signal that asked the job to end; 0: none did.
  int end_signal_ = 0;
  /// A second signal was received: nothing is awaited.
  bool force_kill_ = false;
  /// When to exit without the coordinator's answer.
  net::Deadline shutdown_deadline_ = net::Deadline::max();
};

}  // namespace lockstep::launch
