// How the coordinator replaces single ranks of a running round: RoundRecovery decides.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "lockstep/core/runtime/program.hpp"
#include "process/words.hpp"
#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {

/// Ranks connect with the number of restarts as prefix of their keys (Store::connect).
void Coordinator::begin_recovery(const std::vector<Node*>& order, int world_size, Time now) {
  recovery_.reset();
  if (options_.recovery.max_recoveries == 0) return;
  if (order.size() != 1 || order.front()->info.own_store) {
    notify(
        "lost ranks will not be replaced (--max-recoveries): that needs a job on one node, with the "
        "launcher's "
        "store");
    return;
  }
  const std::string prefix = fmt::format("lockstep/{}/", restarts_.used());
  const NodeId node = order.front()->id;
  actions_.watch(prefix + elastic::kReportPrefix);
  recovery_.emplace(
      options_.recovery, round_, world_size,
      RoundRecovery::Actions{
          .write = [this, prefix](const std::string& key,
                                  const std::string& value) { actions_.write(prefix + key, value); },
          .replace = [this, node](const ReplaceRank& rank) { actions_.send(node, rank); },
          .kill = [this, node](const KillRank& rank) { actions_.send(node, rank); },
          .say = [this](const std::string& text) { notify(text); },
          .activity = [this](int rank) { return last_activity(rank); }},
      now);
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
  recovery_->on_report(text, now);
  stop_if_given_up();
}

void Coordinator::on_rank_ended(const Node& node, const RankEnded& ended, Time now) {
  ProcessFailure failure = ended.failure;
  if (ended.is_spare) {
    if (phase_ != Phase::running || !recovery_) return;
    // It was called before its node has heard of it.
    const bool is_called = recovery_->process_of(failure.rank) == ended.process;
    if (is_called && recovery_->is_recovering()) lost_.push_back(failure);
    std::string how = failure.status ? describe_exit(*failure.status) : "could not be started";
    if (!failure.message.empty()) how += ": " + failure.message.substr(0, failure.message.find('\n'));
    recovery_->on_spare_ended({.rank = failure.rank, .process = ended.process}, how, now);
    return stop_if_given_up();
  }
  const bool in_order = failure.status == 0 || failure.status == kPreemptedExitCode << 8;
  if (phase_ != Phase::running || !recovery_) {
    if (!in_order) on_rank_failed(node, {ended.round, failure});
    return;
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
  if (recovery_->on_rank_ended({.rank = failure.rank, .process = ended.process}, how, now)) return;
  if (was_on) return stop_if_given_up();
  if (in_order) return;
  if (!recovery_->why_not().empty()) notify("the ranks are not recovered: " + recovery_->why_not());
  on_rank_failed(node, {ended.round, failure});
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
