#pragma once

#include <optional>
#include <string>

#include "agent/event_log.hpp"
#include "agent/round.hpp"
#include "agent/stack_dump.hpp"
#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "process/process_supervisor.hpp"
#include "rendezvous/coordinator_client.hpp"

namespace lockstep::launch {

/// Runs the ranks of one node, round after round, as the job's coordinator says. It sleeps until a rank ends,
/// a signal comes, the coordinator speaks, or a time is over. One object a process, on its only thread that
/// starts processes.
///
/// - A rank fails: that is reported to the coordinator, and the others get SIGTERM, and SIGKILL when the
/// shutdown timeout is over. Whether the ranks are started anew is the coordinator's decision. Where it had
/// waited for others in vain, their stacks are shown first, on all nodes.
/// - SIGTERM, SIGINT, SIGQUIT or SIGHUP comes: the ranks get the same signal, and the same time, and the
/// coordinator learns that this node goes. A second one: SIGKILL at once.
/// - SIGUSR1 and SIGUSR2 are passed on.
/// - Whatever the ranks left running when they are gone gets SIGTERM, then SIGKILL.
class Agent {
 public:
  /// All must outlive the agent.
  Agent(const LaunchConfig& config, const Environment& environment, ProcessSupervisor& supervisor,
        CoordinatorClient& coordinator, Console& console);

  /// Runs the job to its end. Returns 0, the first failure's exit code, or 128 + the number of a signal.
  /// Throws SpawnError when the program cannot be started in a job of one node; nothing runs then.
  int run();

  /// Whether a second signal ended the job at once.
  bool was_forced() const noexcept { return force_kill_; }

 private:
  void run_round(const Assignment& place);
  /// False when the ranks cannot be started here, which is reported to the coordinator; a job of one node
  /// throws instead.
  bool start_ranks();
  void wait_for_event();
  void poll_coordinator(net::Deadline now);
  void on_signal(int number);
  void on_end_signal(int number);
  void on_child_ended();
  void on_deadlines(net::Deadline now);
  void on_message(const CoordinatorMessage& message);
  void on_stop(const StopRound& stop);
  void obey_stop(const StopRound& stop);
  void on_hang(const HangFound& hang);
  void stop_after_stacks();
  void show_stacks_first();
  /// `node`: who wants them; nothing: this one.
  void ask_for_stacks(std::optional<NodeId> node);
  void pass_on_stacks(const StackDump::Answer& stacks);
  void on_finish(const Finish& finish);
  void on_lost(const std::string& why);
  void send(const NodeMessage& message);
  void report_end();

  const LaunchConfig& config_;
  const Environment& environment_;
  ProcessSupervisor& supervisor_;
  CoordinatorClient& coordinator_;
  Console& console_;
  LogForwarder forwarder_;
  EventLog events_;
  WorkerSpec spec_;
  std::optional<Round> round_;
  StackDump stacks_;
  /// The ranks hang, or one has waited for others in vain: they are not stopped before it is known
  /// where they are. The order to stop waits meanwhile.
  bool stacks_first_ = false;
  std::optional<StopRound> held_stop_;
  /// The round that the coordinator has assigned and that has not begun.
  std::optional<Assignment> next_;
  /// The exit status of the job, once it is known.
  std::optional<int> exit_code_;
  /// The first signal that asked the job to end; 0: none did.
  int end_signal_ = 0;
  /// Another one came: nothing is waited for any more.
  bool force_kill_ = false;
  /// When to go without the coordinator's answer to its end.
  net::Deadline shutdown_deadline_ = net::Deadline::max();
};

}  // namespace lockstep::launch
