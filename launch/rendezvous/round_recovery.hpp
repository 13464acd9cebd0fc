#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/elastic/recovery_messages.hpp"
#include "core/elastic/recovery_planner.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// How the ranks of one round are replaced: between the RecoveryPlanner, which decides, and the Coordinator
/// with its agents and its store. A state machine without clock, sockets or threads. It does nothing until
/// all ranks have begun a training that can be recovered (run_elastic), nor after it is over: then what
/// happens to a rank is the Coordinator's affair.
class RoundRecovery {
 public:
  using Time = elastic::RecoveryPlanner::Time;

  /// What it acts through.
  struct Actions {
    /// Sets a key of the ranks' store.
    std::function<void(const std::string& key, const std::string& value)> write;
    std::function<void(int node, const ReplaceRank&)> replace;
    std::function<void(int node, const KillRank&)> kill;
    /// Starts these processes, by rank, on the node that takes the place of the lost one.
    std::function<void(int node, const std::vector<ReplaceRank>&)> start_node;
    /// A line for the user.
    std::function<void(const std::string&)> say;
    /// What the process of a rank was last seen in: "forward, step 57"; "" if it never told.
    std::function<std::string(int rank)> activity;
  };

  /// The ranks of the round are started `now`. `nodes[r]` is the node of rank r.
  RoundRecovery(elastic::RecoveryOptions options, int round, std::vector<int> nodes, Actions actions,
                Time now);

  /// A key of the ranks' has changed: `text` is its value.
  void on_report(const std::string& text, Time now);
  /// The process of a rank has ended. True: the recovery deals with it. `how` completes "rank 1 ".
  bool on_rank_ended(const elastic::RankProcess& process, const std::string& how, Time now);
  /// A spare has ended, which may have been called meanwhile. That is no failure of the job.
  void on_spare_ended(const elastic::RankProcess& process, const std::string& how, Time now);
  /// All processes of the node are out of reach. True: the recovery deals with it, and starts others of the
  /// same ranks if there is a successor. `how` completes "node 1 ".
  bool on_node_lost(int node, const std::string& how, bool has_successor, Time now);
  /// The node is asked to end, and another one waits that can start its ranks. True: the recovery deals with
  /// it: the node's processes are killed. `why` completes "node 1 ".
  bool on_node_leaves(int node, const std::string& why, Time now);
  /// The job has made no progress for --heartbeat-timeout, because of that rank. True: the recovery deals
  /// with it; the rank is killed, and replaced when it has ended. False: no recovery is left. `text`: what is
  /// known of the hang. `can_show_stacks`: whether its process can run.
  bool on_hang(int rank, const std::string& text, bool can_show_stacks, Time now);
  /// The text of the hang because of which the rank's process is killed, or was; "" if it did not hang.
  std::string hang_of(int rank) const;
  /// The number of the rank's process: its first one, or the one that was started or called last.
  int process_of(int rank) const;
  /// The ranks are stopped, or the job ends.
  void stop(const std::string& why);
  void on_timer(Time now);
  Time deadline() const;

  /// Whether a loss would be, or is being, recovered.
  bool is_on() const { return planner_ && !planner_->is_over(); }
  /// Whether a loss was found to be impossible to recover: the ranks must be stopped.
  bool gave_up() const noexcept { return gave_up_; }
  bool is_recovering() const { return is_on() && planner_->is_recovering(); }
  /// Why the last loss is not recovered; "" if none was lost.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  void act(const elastic::PlannerActions& actions, Time now);
  void write_over(const std::string& why);
  bool is_ready();
  bool is_same_program(const elastic::RankReport& report);
  ReplaceRank order_to_start(const elastic::RankProcess& process, elastic::Generation generation);
  int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  elastic::RecoveryOptions options_;
  int round_;
  std::vector<int> nodes_;
  Actions actions_;
  std::set<int> begun_;
  /// By rank: what its first process has reported.
  std::map<int, std::string> programs_;
  /// By rank, for those that were replaced: the number of the process.
  std::map<int, int> processes_;
  struct Hang {
    elastic::RankProcess process;
    std::string text;
    bool shows_stacks = false;
  };
  /// The last one that the recovery dealt with.
  std::optional<Hang> hang_;
  std::vector<elastic::RankProcess> finished_;
  std::optional<elastic::RecoveryPlanner> planner_;
  /// The ranks were told that nobody is replaced any more.
  bool is_over_ = false;
  bool gave_up_ = false;
  std::string why_not_;
  Time started_;
  Time since_{};
};

}  // namespace lockstep::launch
