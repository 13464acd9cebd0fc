// What the coordinator does about ranks that hang, and with stacks.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kLookInterval{1};
/// What one node's request may bring back from the others, so that the connection to it is not flooded.
constexpr std::size_t kMostStacks = 2 << 20;

}  // namespace

void Coordinator::begin_hang_detection(Time now) {
  status_table_.clear();
  hang_detector_ =
      HangDetector({.timeout = options_.heartbeat_timeout, .sees_all_ranks = !has_torchrun_nodes()});
  next_look_ = now + kLookInterval;
}

bool Coordinator::all_ranks_are_still() const {
  return phase_ == Phase::running && status_table_.is_complete(nodes_);
}

void Coordinator::detect_hangs(Time now) {
  if (now < next_look_ || !all_ranks_are_still()) return;
  next_look_ = now + kLookInterval;
  const auto ranks = status_table_.ranks(nodes_, now);
  const auto found = hang_detector_.look(ranks);
  if (!found) return;
  broadcast(HangFound{.round = round_,
                      .text = found->hang.text,
                      .ends_job = found->ends_job,
                      .limit = options_.heartbeat_timeout,
                      .rank = rank_to_blame(found->hang, ranks),
                      .stuck = found->hang.stuck});
}

/// The rank in whose name the job fails: a stuck one where its node is still there to say so, else one that
/// waits.
int Coordinator::rank_to_blame(const Hang& hang, const std::vector<RankStatus>& ranks) const {
  for (const int rank : hang.stuck) {
    for (const auto& node : nodes_) {
      if (node.active && !node.ended && status_table_.has(node.id, rank)) return rank;
    }
  }
  const auto running =
      std::find_if(ranks.begin(), ranks.end(), [](const RankStatus& rank) { return !rank.status; });
  return running == ranks.end() ? -1 : running->rank;
}

void Coordinator::collect_stacks(Node& requester) {
  requester.stacks_passed = 0;
  for (const auto& node : nodes_) {
    if (node.id != requester.id && node.active && !node.ended)
      actions_.send(node.id, CollectStacks{requester.id});
  }
}

void Coordinator::pass_on_stacks(const Node& from, const Stacks& stacks) {
  Node* requester = find(stacks.requester);
  if (requester == nullptr) return;
  if (requester->stacks_passed + stacks.text.size() > kMostStacks) {
    actions_.send(requester->id,
                  Notice{fmt::format("the stacks of {} are left out, as there are many: ask its own launcher",
                                     from.text())});
  } else {
    requester->stacks_passed += stacks.text.size();
    actions_.send(requester->id, Report{stacks.text});
  }
}

}  // namespace lockstep::launch
