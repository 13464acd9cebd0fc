// What the coordinator does with ranks that hang, and with stacks.

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/rank_messages.hpp"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kLookInterval{1};
/// What one node's request may bring back from the others, so that the connection to it is not flooded.
constexpr std::size_t kMostStacks = 2 << 20;

}  // namespace

void Coordinator::begin_watch(Time now) {
  status_table_.clear();
  judge_ = HangDetector({.timeout = options_.heartbeat_timeout, .sees_all_ranks = !has_mute_nodes()});
  next_look_ = now + kLookInterval;
}

void Coordinator::on_status(const Node& node, const Json& message, Time now) {
  status_table_.put(node.id, read_still(message), now);
}

bool Coordinator::watches() const { return phase_ == Phase::running && status_table_.is_complete(nodes_); }

void Coordinator::look_at_ranks(Time now) {
  if (now < next_look_ || !watches()) return;
  next_look_ = now + kLookInterval;
  const auto views = status_table_.views(nodes_, now);
  const auto found = judge_.look(views);
  if (!found) return;
  broadcast({{"type", "standstill"},
             {"round", round_},
             {"text", found->hang.text},
             {"ends", found->ends_job},
             {"limit", options_.heartbeat_timeout.count()},
             {"stuck", found->hang.stuck},
             {"rank", rank_to_blame(found->hang, views)}});
}

/// The rank in whose name the job fails: a stuck one where its node is still there to say so, else one that
/// waits.
int Coordinator::rank_to_blame(const Hang& standstill, const std::vector<RankStatus>& views) const {
  for (const int rank : standstill.stuck) {
    for (const auto& node : nodes_) {
      if (node.active && !node.ended && status_table_.has(node.id, rank)) return rank;
    }
  }
  const auto running =
      std::find_if(views.begin(), views.end(), [](const RankStatus& view) { return !view.status; });
  return running == views.end() ? -1 : running->rank;
}

void Coordinator::ask_for_stacks(Node& asking) {
  asking.stacks_passed = 0;
  for (const auto& node : nodes_) {
    if (node.id != asking.id && node.active && !node.ended)
      outbox_.send(node.id, {{"type", "stacks"}, {"for", asking.id}});
  }
}

void Coordinator::pass_on_stacks(const Node& from, const Json& message) {
  const auto to = message.find("for");
  const auto text = message.find("text");
  if (to == message.end() || !to->is_number_integer() || text == message.end() || !text->is_string())
    throw DataError("a message between launchers has no valid stacks.");
  Node* asking = find(to->get<NodeId>());
  if (asking == nullptr) return;
  const std::size_t size = text->get_ref<const std::string&>().size();
  if (asking->stacks_passed + size > kMostStacks) {
    outbox_.send(asking->id, {{"type", "text"},
                              {"text", "the stacks of " + from.text() +
                                           " are left out, as there are many: ask its own launcher"}});
  } else {
    asking->stacks_passed += size;
    outbox_.send(asking->id, {{"type", "report"}, {"text", *text}});
  }
}

}  // namespace lockstep::launch
