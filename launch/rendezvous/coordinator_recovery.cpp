// How the coordinator replaces single ranks of a running round: RoundRecovery decides.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "lockstep/core/runtime/program.hpp"
#include "process/words.hpp"
#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {

/// Why they may not is said.
bool Coordinator::may_recover(const std::vector<Node*>& order) {
  if (options_.recovery.max_recoveries == 0) return false;
  const char* obstacle = nullptr;
  if (order.front()->info.own_store)
    obstacle = "the ranks have a store of their own (TORCH_DISABLE_SHARE_RDZV_TCP_STORE)";
  if (has_torchrun_nodes()) obstacle = "torchrun's agents cannot replace a rank";
  if (obstacle != nullptr) notify("lost ranks will not be replaced (--max-recoveries): {}", obstacle);
  return obstacle == nullptr;
}

/// Ranks connect with the number of restarts as prefix of their keys (Store::connect).
void Coordinator::begin_recovery(const std::vector<Node*>& order, Time now) {
  recovery_.reset();
  if (!may_recover(order)) return;
  std::vector<int> nodes;
  for (std::size_t node = 0; node < order.size(); ++node)
    nodes.insert(nodes.end(), static_cast<std::size_t>(order[node]->info.local_world_size),
                 static_cast<int>(node));
  const std::string prefix = fmt::format("lockstep/{}/", restarts_.used());
  actions_.watch(prefix + elastic::kReportPrefix);
  recovery_.emplace(
      options_.recovery, round_, std::move(nodes),
      RoundRecovery::Actions{
          .write = [this, prefix](const std::string& key,
                                  const std::string& value) { actions_.write(prefix + key, value); },
          .replace = [this](int node, const ReplaceRank& rank) { send_to(node, rank); },
          .kill = [this](int node, const KillRank& rank) { send_to(node, rank); },
          .start_node = [this](int node,
                               const std::vector<ReplaceRank>& ranks) { start_successor(node, ranks); },
          .say = [this](const std::string& text) { notify(text); },
          .activity = [this](int rank) { return last_activity(rank); }},
      now);
}

/// To the node of this round that has that number.
void Coordinator::send_to(int group_rank, const CoordinatorMessage& message) {
  const auto node = std::ranges::find_if(
      nodes_, [&](const Node& each) { return each.active && each.group_rank == group_rank; });
  if (node != nodes_.end()) actions_.send(node->id, message);
}

/// A node that waits and can take the place of this one. It has as many ranks: then ranks that share a host
/// still do, and all sums are taken in the same order.
std::optional<NodeId> Coordinator::find_successor(const Node& node) const {
  const auto found = std::ranges::find_if(nodes_, [&](const Node& other) {
    return !other.active && other.drain_signal == 0 && !other.info.is_torchrun &&
           other.info.local_world_size == node.info.local_world_size && other.info.role == node.info.role;
  });
  return found == nodes_.end() ? std::nullopt : std::optional(found->id);
}

/// Ranks that were replaced are no cause of what happens now.
void Coordinator::forget_earlier_losses() {
  if (!recovery_->is_recovering()) lost_.clear();
}

/// Whether the round goes on without the lost node: one that waits takes its place.
bool Coordinator::recover_node(const Node& lost, const std::string& how, Time now) {
  if (phase_ != Phase::running || !recovery_) return false;
  successor_ = find_successor(lost);
  const bool was_on = recovery_->is_on(), was_recovering = recovery_->is_recovering();
  forget_earlier_losses();
  if (recovery_->on_node_lost(*lost.group_rank, how, successor_.has_value(), now)) return true;
  if (const std::string& why = recovery_->why_not(); !why.empty())
    notify(was_on ? why : "the ranks are not recovered: " + why);
  if (was_recovering) {
    for (const auto& failure : lost_) keep_failure(failure);
  }
  return false;
}

void Coordinator::start_successor(int group_rank, const std::vector<ReplaceRank>& ranks) {
  // One that leaves, and whose ranks have ended.
  const auto left = std::ranges::find_if(
      nodes_, [&](const Node& each) { return each.active && each.group_rank == group_rank; });
  if (left != nodes_.end()) {
    successor_ = find_successor(*left);
    left->active = false;
    release(*left);
  }
  Node* const node = successor_ ? find(*successor_) : nullptr;
  if (node == nullptr) {
    static_cast<void>(recovery_->on_node_lost(group_rank, "left", false, round_started_));
    return;
  }
  node->group_rank = group_rank;
  node->active = true;
  node->ended = false;
  node->ranks.clear();
  notify("{} takes the place of the lost node {}", node->text(), group_rank);
  Assignment assignment = assignments_[static_cast<std::size_t>(group_rank)];
  assignment.replaces = ranks;
  actions_.send(node->id, assignment);
}

std::string Coordinator::last_activity(int rank) const {
  for (const auto& node : nodes_) {
    const auto found = std::ranges::find(node.ranks, rank, &RankStatus::rank);
    if (found != node.ranks.end() && found->beat) return found->beat->text();
  }
  return "";
}

void Coordinator::on_rank_report(const std::string& text, Time now) {
  if (phase_ != Phase::running || !recovery_) return;
  forget_earlier_losses();
  recovery_->on_report(text, now);
  stop_if_given_up();
}

void Coordinator::on_rank_ended(const Node& node, const RankEnded& ended, Time now) {
  if (!is_replaced(node, ended, now)) actions_.send(node.id, NotReplaced{ended.round, ended.failure.rank});
}

/// Whether the recovery deals with the rank; otherwise its end is that of a rank in a job without recoveries.
bool Coordinator::is_replaced(const Node& node, const RankEnded& ended, Time now) {
  ProcessFailure failure = ended.failure;
  if (ended.is_spare) {
    if (phase_ != Phase::running || !recovery_) return true;
    // It was called before its node has heard of it.
    const bool is_called = recovery_->process_of(failure.rank) == ended.process;
    if (is_called && recovery_->is_recovering()) lost_.push_back(failure);
    std::string how = failure.status ? describe_exit(*failure.status) : "could not be started";
    if (!failure.message.empty()) how += ": " + failure.message.substr(0, failure.message.find('\n'));
    recovery_->on_spare_ended({.rank = failure.rank, .process = ended.process}, how, now);
    stop_if_given_up();
    return true;
  }
  const bool in_order = failure.status == 0 || failure.status == kPreemptedExitCode << 8;
  if (phase_ != Phase::running || !recovery_) {
    if (!in_order) on_rank_failed(node, {ended.round, failure});
    return false;
  }
  const bool was_on = recovery_->is_on();
  const bool is_hung = recovery_->process_of(failure.rank) == ended.process && name_hang(failure);
  if (was_on && in_order && !is_hung) {
    failure.message =
        fmt::format("it {} in the middle of its training (run_elastic)", describe_exit(*failure.status));
    failure.status = 1 << 8;
  }
  if (was_on && !recovery_->is_recovering()) lost_.clear();
  if (was_on) lost_.push_back(failure);
  const std::string how = failure.status ? describe_exit(*ended.failure.status) : "could not be started";
  if (recovery_->on_rank_ended({.rank = failure.rank, .process = ended.process}, how, now)) return true;
  if (was_on) {
    stop_if_given_up();
    return false;
  }
  if (in_order) return false;
  if (!recovery_->why_not().empty()) notify("the ranks are not recovered: " + recovery_->why_not());
  on_rank_failed(node, {ended.round, failure});
  return false;
}

/// The recovery has killed it, and reports of that alone.
bool Coordinator::name_hang(ProcessFailure& failure) const {
  const std::string text = recovery_ ? recovery_->hang_of(failure.rank) : "";
  if (text.empty()) return false;
  failure.hung = true;
  failure.message = text;
  return true;
}

void Coordinator::stop_if_given_up() {
  if (phase_ != Phase::running || !recovery_->gave_up()) return;
  notify(recovery_->why_not());
  for (const auto& failure : lost_) keep_failure(failure);
  stop(Reason::failure, SIGTERM);
}

}  // namespace lockstep::launch
