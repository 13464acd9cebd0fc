#include "rendezvous/rank_status_table.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::launch {
namespace {

/// A look of a node at its ranks is a second old at most, and the network may be slow.
constexpr std::chrono::milliseconds kDelay{1500};

bool tells(const Node& node) { return node.active && !node.info.is_torchrun; }

}  // namespace

void RankStatusTable::put(NodeId node, std::vector<RankStatus> views, Time now) {
  if (views.empty()) {
    nodes_.erase(node);
  } else {
    nodes_[node] = {std::move(views), now};
  }
}

bool RankStatusTable::is_complete(const std::vector<Node>& nodes) const {
  return !nodes_.empty() && std::all_of(nodes.begin(), nodes.end(), [this](const Node& node) {
    return !tells(node) || nodes_.contains(node.id);
  });
}

std::vector<RankStatus> RankStatusTable::ranks(const std::vector<Node>& nodes, Time now) const {
  std::vector<RankStatus> all;
  for (const auto& node : nodes) {
    const auto told = nodes_.find(node.id);
    if (!tells(node) || told == nodes_.end()) continue;
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - told->second.when);
    for (RankStatus view : told->second.views) {
      view.still = std::max(view.still + passed - kDelay, std::chrono::milliseconds(0));
      all.push_back(std::move(view));
    }
  }
  return all;
}

bool RankStatusTable::has(NodeId node, int rank) const {
  const auto told = nodes_.find(node);
  return told != nodes_.end() && std::any_of(told->second.views.begin(), told->second.views.end(),
                                             [&](const RankStatus& view) { return view.rank == rank; });
}

}  // namespace lockstep::launch
