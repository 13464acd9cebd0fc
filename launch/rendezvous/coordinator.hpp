#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "failure/failure_analysis.hpp"
#include "failure/hang.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/rank_assignment.hpp"
#include "rendezvous/rank_status_table.hpp"
#include "rendezvous/restart_policy.hpp"

namespace lockstep::launch {

/// Judges the records of ranks, in the order in which they were told of; the first is the first that failed.
using Judge = std::function<FailureSummary(const std::vector<Json>& records)>;

/// What the coordinator is told about the job when it begins.
struct CoordinatorOptions {
  using Milliseconds = std::chrono::milliseconds;
  std::string run_id = "none";
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  /// The first pause before a restart; see RestartPolicy.
  Milliseconds restart_backoff{0};
  /// How long to wait for `min_nodes`.
  Milliseconds join_timeout = std::chrono::minutes(10);
  /// How long the first round waits for more nodes once `min_nodes` are there.
  Milliseconds last_call_timeout = std::chrono::seconds(30);
  /// A node that is silent for so long is lost.
  Milliseconds keep_alive_timeout = std::chrono::seconds(15);
  /// How long nodes may need to go once the job is over.
  Milliseconds close_timeout = std::chrono::seconds(30);
  /// How long Python agents may work on when all other nodes have ended.
  Milliseconds exit_barrier_timeout = std::chrono::minutes(5);
  /// When a standstill of all nodes' ranks ends the job; 0: never.
  Milliseconds heartbeat_timeout{0};
  /// Between two lines about who is awaited.
  Milliseconds notice_interval = std::chrono::seconds(10);
  Judge judge;
};

/// What the coordinator does to the world around it.
class CoordinatorActions {
 public:
  virtual ~CoordinatorActions() = default;
  virtual void send(NodeId node, const Json& message) = 0;
  /// Ends the connection. The coordinator has forgotten the node.
  virtual void dismiss(NodeId node) = 0;
  /// A round begins (1: the first): whatever the ranks of an earlier one left in the store must be gone.
  virtual void begin_round(int round) = 0;
};

/// The one place where it is decided who takes part, when ranks start and stop, whether a failed job is
/// started anew, and how it ends. A state machine without clock, sockets or threads: it is told what happens
/// and when (on a clock of its own host alone; clocks of different hosts are never compared), and acts
/// through the outbox.
///
/// A job goes through rounds. Each one gathers nodes, starts their ranks, and ends when all ranks have
/// succeeded (the job is over) or when something happens: a rank fails (a restart is used up), a node comes
/// while there is room, a node goes (no restart is used up as long as `min_nodes` are left), the job is told
/// to end. Then all ranks are stopped, and the next round begins when no process of this one is left on any
/// node.
class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The outbox must outlive the coordinator.
  Coordinator(CoordinatorOptions options, CoordinatorActions& outbox, Time now);

  /// A node that has proved the job's secret says who it is. It is told `reject` when it cannot be part of
  /// this job. The coordinator's own node has the id 0.
  void on_join(NodeId id, const NodeInfo& info, Time now);
  /// Throws DataError for a message that is not of the protocol's form; the caller then calls
  /// `on_disconnect`.
  void on_message(NodeId id, const Json& message, Time now);
  /// The connection is gone; `how` ends the sentence "node 1 (...) ".
  void on_disconnect(NodeId id, const std::string& how, Time now);
  /// To be called at `deadline()`.
  void on_timer(Time now);
  Time deadline() const;

  /// Whether the job is over and all nodes but the coordinator's own have gone.
  bool finished() const;

 private:
  enum class Phase { gathering, running, stopping, finishing };
  /// Why ranks are stopped; a later one in this list overrides an earlier one.
  enum class Reason { membership, failure, node_lost, end };

  Node* find(NodeId id);
  std::string rejection(const NodeInfo& info) const;
  void tell_of_clock(const Node& node);
  void on_rank_message(Node& node, const std::string& type, const Json& message, Time now);
  void on_failed(const Node& node, const Json& message, Time now);
  void on_ended(Node& node, const Json& message, Time now);
  void on_draining(Node& node, int signal, Time now);
  void release(const Node& node);
  void keep_record(const Json& record);

  void begin_watch(Time now);
  void on_status(const Node& node, const Json& message, Time now);
  /// Whether no rank of the job moves, as far as nodes tell.
  bool watches() const;
  void look_at_ranks(Time now);
  int rank_to_blame(const Hang& standstill, const std::vector<RankStatus>& views) const;
  void ask_for_stacks(Node& asking);
  void pass_on_stacks(const Node& from, const Json& message);

  void gather(Time now);
  void try_start(Time now);
  void start(const std::vector<Node*>& order, Time now);
  void stop(Reason reason, int signal);
  void tell_stop(Reason reason, int signal);
  void check_all_ended(Time now);
  void note_mute_only(Time now);
  void after_round(Time now);
  void after_preemption(Time now);
  void after_failure(Time now);
  void after_loss(Time now);
  void restart(const std::string& why, Time now);
  void finish(int exit_code, const Json& error, Time now);
  void drop_silent(Time now);
  void say(const std::string& text);
  void report_failure(const FailureSummary& summary);
  void report(const std::string& text);
  void broadcast(const Json& message);
  std::string awaited() const;

  bool elastic() const { return options_.min_nodes < options_.max_nodes; }
  int staying() const;
  /// Agents of torchrun's cannot be told to start anew.
  bool has_mute_nodes() const;

  CoordinatorOptions options_;
  CoordinatorActions& outbox_;
  std::vector<Node> nodes_;
  Phase phase_ = Phase::gathering;
  Reason reason_ = Reason::membership;
  int round_ = 0;
  int restart_count_ = 0;
  RestartPolicy restarts_;
  Time round_started_;
  /// The most steps that a rank of this round has done, where ranks tell.
  std::optional<std::uint64_t> best_step_;
  /// No round begins before it.
  std::optional<Time> pause_end_;
  RankStatusTable status_table_;
  HangDetector judge_;
  Time next_look_;
  /// What told the job to end.
  int end_signal_ = 0;
  /// The records of this round, those of ranks that failed by themselves first.
  std::vector<Json> records_;
  /// A node's ranks of this round ended because they were asked to save their state.
  bool preempted_ = false;
  /// And those of every other node that has ended so far have done the same, or have succeeded.
  bool in_order_ = true;
  /// The nodes that were lost in this round, a line each.
  std::string losses_;
  Time gathering_since_;
  std::optional<Time> last_call_;
  Time next_notice_;
  std::optional<Time> close_deadline_;
  /// When nodes that say nothing before their end must have ended, once all others have.
  std::optional<Time> mute_deadline_;
};

}  // namespace lockstep::launch
