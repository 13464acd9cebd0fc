#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "failure/failure_analysis.hpp"
#include "failure/hang.hpp"
#include "net/deadline.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/rank_assignment.hpp"
#include "rendezvous/restart_policy.hpp"
#include "rendezvous/round_recovery.hpp"

namespace lockstep::launch {

/// The job's options, as the coordinator needs them.
struct CoordinatorOptions {
  using Milliseconds = std::chrono::milliseconds;
  std::string run_id = "none";
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  /// The first pause before a restart; see RestartPolicy.
  Milliseconds restart_backoff{0};
  /// How long to wait for `min_nodes`, and the name of this option for messages.
  Milliseconds join_timeout = std::chrono::minutes(10);
  std::string join_timeout_option = "--rdzv-conf join_timeout";
  /// How long the first round waits for more nodes once `min_nodes` are there.
  Milliseconds last_call_timeout = std::chrono::seconds(30);
  /// A node that is silent for this long is lost.
  Milliseconds keep_alive_timeout = std::chrono::seconds(15);
  /// How long nodes may take to leave after the end of the job.
  Milliseconds close_timeout = std::chrono::seconds(30);
  /// How long torchrun agents may continue after all other nodes have ended.
  Milliseconds exit_barrier_timeout = std::chrono::minutes(5);
  /// After how long a hang of all nodes' ranks ends the job; 0: never.
  Milliseconds heartbeat_timeout{0};
  /// Whether the heartbeats of all ranks of the job are known; see HangOptions.
  bool sees_all_ranks = true;
  /// Address for other nodes, and what to run there, for messages; empty: no node can join.
  std::string how_to_join;
  /// How lost ranks are replaced while the others go on; see RoundRecovery.
  elastic::RecoveryOptions recovery = {};
  /// Summarizes a failed round.
  std::function<FailureSummary(const std::vector<ProcessFailure>&)> analyze = analyze_failures;
};

/// The actions of the coordinator.
class CoordinatorActions {
 public:
  virtual ~CoordinatorActions() = default;
  virtual void send(NodeId node, const CoordinatorMessage& message) = 0;
  /// Closes the connection; on_disconnect need not be called for it.
  virtual void dismiss(NodeId node) = 0;
  /// A round starts (the first is 1): data of earlier rounds must be removed from the store.
  virtual void begin_round(int round) = 0;
  /// From now on on_rank_report() is called for each key with this prefix that a rank sets.
  virtual void watch(const std::string& /*prefix*/) {}
  /// Sets a key of the ranks' store.
  virtual void write(const std::string& /*key*/, const std::string& /*value*/) {}
};

/// Decides which nodes take part, when ranks start and stop, whether a failed job is restarted, and how it
/// ends. It is a state machine without clock, sockets or threads: it is called with events and their times,
/// and acts through CoordinatorActions. All times are from its own host's clock; clocks of different hosts
/// are never compared.
///
/// A job consists of rounds. A round gathers nodes, starts their ranks, and ends when all ranks have
/// succeeded (the job is over) or one of these happens: a rank fails (this uses up a restart), a node joins
/// while there is room, a node leaves (no restart is used up as long as `min_nodes` are left), or the job is
/// asked to end. Then all ranks are stopped. The next round starts when no process of this one is left on any
/// node.
///
///     phase      event                                      action                              next phase
///     ---------  -----------------------------------------  ----------------------------------  ----------
///     gathering  enough nodes, and no pause or last call    assign ranks, send Assignment       running
///                join_timeout without min_nodes             report who is missing               finishing
///                our own node is asked to end               Finish 128 + signal                 finishing
///                another node is asked to end               release it                          gathering
///                a node is lost                             count the others again              gathering
///     running    a rank fails                               StopRound at once: failure          stopping
///                a node is lost whose ranks run             StopRound at once: node_lost        stopping
///                  ... and RoundRecovery has a successor    Assignment for the node that waits  running
///                a node joins, and there is room            StopRound: membership               stopping
///                a node joins otherwise                     Notice: it is a spare               running
///                a spare or ended node is asked to end      release it                          running
///                another node is asked to; RoundRecovery    KillRank; then Assignment for the   running
///                  has a successor                          one that waits, and release it
///                another node is asked to; enough remain    StopRound: membership               stopping
///                any other request to end                   StopRound with its signal: end      stopping
///                all ranks succeeded                        Finish 0                            finishing
///                all succeeded or saved their state         Finish kPreemptedExitCode           finishing
///                a rank ends that RoundRecovery replaces    ReplaceRank                         running
///                  ... or not (with --max-recoveries)       NotReplaced                         running
///                torchrun's agents are lost, or too late    report, Finish 1                    finishing
///     stopping   a reason that is later in Reason           replaces the reason, StopRound      stopping
///                a node joins                               it takes part in the next round     stopping
///                a node is asked to end; enough remain      release it when its ranks end       stopping
///                all ended: membership                      -                                   gathering
///                all ended: failure                         report; restart if one is left,     gathering
///                                                           otherwise Finish                    finishing
///                all ended: node_lost, a rank failed first  as for failure
///                all ended: node_lost, enough remain        pause                               gathering
///                all ended: node_lost, otherwise            report; restart, otherwise Finish   as above
///                all ended: end                             Finish 128 + signal, or             finishing
///                                                           kPreemptedExitCode (see below)
///     finishing  a node joins                               Reject                              finishing
///                all left, or close_timeout                 dismiss the rest                    finished()
///
/// In every phase, a node whose options do not fit is rejected, and so is any node once the job is asked to
/// end. A launcher on another host that is silent for keep_alive_timeout is lost. A node that is lost when
/// its ranks have ended, or that waits as a spare, is forgotten: nothing else follows. A hang is not an event
/// of its own: the coordinator reports it (HangFound), and if it ends the job, a node then reports the
/// failure of a rank.
///
/// If all ranks succeeded or saved their state and exited because they were asked to (preempted), the job
/// finishes with kPreemptedExitCode instead of 128 + signal. A job with torchrun agents, which cannot be told
/// to start again, is not restarted after a failure.
class Coordinator {
 public:
  using Time = net::Deadline;

  /// The actions must outlive the coordinator.
  Coordinator(CoordinatorOptions options, CoordinatorActions& actions, Time now);

  /// A node that has proved the job's secret joins. It gets a Reject if it cannot be part of this job. The
  /// coordinator's own node has id 0.
  void on_join(NodeId id, const NodeInfo& info, Time now);
  void on_message(NodeId id, const NodeMessage& message, Time now);
  /// The connection is closed; `how` completes the sentence "node 1 (...) ".
  void on_disconnect(NodeId id, const std::string& how, Time now);
  /// A client was refused before it could join: `who` ("a launcher from 10.0.0.2") and why. All nodes are
  /// notified once, and again if the job does not get enough nodes in time. The same refusal may be passed
  /// repeatedly.
  void on_refused(const std::string& who, const std::string& why);
  /// A rank has set a watched key: its value.
  void on_rank_report(const std::string& text, Time now);
  /// To be called at `deadline()`.
  void on_timer(Time now);
  Time deadline() const;

  /// Whether only torchrun agents, which report nothing but their end, keep the job from ending.
  bool waits_for_torchrun() const { return phase_ == Phase::running && torchrun_deadline_ != Time::max(); }
  /// While it waits for them: no client of the store is left.
  void on_torchrun_lost(Time now);

  /// Whether the job is over and all other nodes have left.
  bool finished() const;

 private:
  enum class Phase { gathering, running, stopping, finishing };
  /// Why ranks are stopped; a later one in this list overrides an earlier one.
  enum class Reason { membership, failure, node_lost, end };

  Node* find(NodeId id);
  void erase(NodeId id);
  std::string rejection(const NodeInfo& info) const;
  void compare_arguments(const Node& node);
  void compare_clocks(const Node& node);
  void on_rank_failed(const Node& node, const RankFailed& failed);
  void on_rank_ended(const Node& node, const RankEnded& ended, Time now);
  bool is_replaced(const Node& node, const RankEnded& ended, Time now);
  bool may_recover(const std::vector<Node*>& order);
  void begin_recovery(const std::vector<Node*>& order, Time now);
  void send_to(int group_rank, const CoordinatorMessage& message);
  std::optional<NodeId> find_successor(const Node& node) const;
  bool can_be_relieved(const Node& node) const;
  void relieve(Time now);
  void forget_earlier_losses();
  bool recover_node(const Node& lost, const std::string& how, Time now);
  void start_successor(int group_rank, const std::vector<ReplaceRank>& ranks);
  std::string last_activity(int rank) const;
  bool name_hang(ProcessFailure& failure) const;
  void stop_if_given_up();
  void on_round_ended(Node& node, const RoundEnded& ended, Time now);
  void on_draining(Node& node, int signal, Time now);
  void end_node(Node& node, Time now);
  bool is_current(const Node& node, int round) const;
  void release(const Node& node);
  void keep_failure(ProcessFailure failure);

  void on_status(Node& node, const StatusReport& report, Time now);
  std::vector<RankStatus> all_ranks() const;
  void detect_hangs(Time now);
  std::optional<int> choose_hung_rank(const Hang& hang, const std::vector<RankStatus>& ranks) const;
  void collect_stacks(Node& requester);
  void pass_on_stacks(const Node& from, const Stacks& stacks);

  void gather(Time now);
  void try_start(Time now);
  void start(const std::vector<Node*>& order, Time now);
  void stop(Reason reason, int signal);
  void check_all_ended(Time now);
  void wait_for_torchrun(Time now);
  void after_round(Time now);
  void after_failure(Time now);
  void after_loss(Time now);
  bool restart(Time now);
  void pause_for(std::chrono::milliseconds pause, const std::string& what, Time now);
  std::chrono::milliseconds lived(Time now) const;
  void finish(int exit_code, const nlohmann::json& error, Time now);
  /// Reports a failure that no rank has caused, and ends the job.
  void fail(const std::string& why, Time now);
  void end_by(int signal, Time now);
  void drop_silent_nodes(Time now);
  void notify(const std::string& text) { broadcast(Notice{text}); }
  template <class... Values>
  void notify(fmt::format_string<Values...> text, Values&&... values) {
    notify(fmt::format(text, std::forward<Values>(values)...));
  }
  void report(const std::string& text) { broadcast(Report{text}); }
  void broadcast(const CoordinatorMessage& message);
  std::string awaited() const;
  std::string refused() const;

  bool elastic() const { return options_.min_nodes < options_.max_nodes; }
  /// The nodes that were not asked to end.
  int staying() const { return static_cast<int>(std::ranges::count(nodes_, 0, &Node::drain_signal)); }
  /// torchrun agents cannot be told to restart.
  bool has_torchrun_nodes() const;

  CoordinatorOptions options_;
  CoordinatorActions& actions_;
  /// In the order in which they joined.
  std::vector<Node> nodes_;
  /// Where in nodes_ each is.
  std::unordered_map<NodeId, std::size_t> places_;
  Phase phase_ = Phase::gathering;
  Reason reason_ = Reason::membership;
  int round_ = 0;
  RestartPolicy restarts_;
  Time round_started_;
  /// Of this round, by group rank.
  std::vector<Assignment> assignments_;
  /// The largest number of steps that a rank of this round has completed, if known.
  std::optional<std::uint64_t> best_step_;
  /// No round starts before this time.
  std::optional<Time> pause_end_;
  HangDetector hang_detector_;
  Time next_look_;
  /// The signal that asked the job to end.
  int end_signal_ = 0;
  /// The failures of this round, in the order in which they were reported.
  std::vector<ProcessFailure> failures_;
  /// Replaces the ranks of this round, if the options allow it.
  std::optional<RoundRecovery> recovery_;
  /// The node that takes the place of the one that was lost, or has left.
  std::optional<NodeId> successor_;
  /// A node that was asked to end, and that one that waits is to relieve unless more nodes are asked until
  /// then.
  struct Relieved {
    NodeId node;
    Time at;
  };
  std::optional<Relieved> relieved_;
  /// The processes that were lost in the recovery under way.
  std::vector<ProcessFailure> lost_;
  /// The ranks of some node ended this round because they were asked to save their state.
  bool preempted_ = false;
  /// All nodes that have ended so far have saved their state or succeeded.
  bool in_order_ = true;
  /// The nodes that were lost in this round, one line each.
  std::string losses_;
  /// Who was refused, and why.
  std::map<std::string, std::string> refused_;
  Time gathering_since_;
  Time next_notice_;
  // Time::max(): not waiting.
  Time last_call_ = Time::max();
  Time close_deadline_ = Time::max();
  /// When torchrun agents, which report only their end, must have ended after all other nodes.
  Time torchrun_deadline_ = Time::max();
};

}  // namespace lockstep::launch
