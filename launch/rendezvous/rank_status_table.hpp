#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "failure/hang.hpp"
#include "rendezvous/rank_assignment.hpp"

namespace lockstep::launch {

/// What the nodes have told of ranks that stand still. Each node says how long its ranks have been still;
/// from then on the coordinator's clock counts, so no clocks of two hosts are compared. A rank that moves is
/// heard of with some delay, which is counted in its favour.
class RankStatusTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// No views: the node's ranks move.
  void put(NodeId node, std::vector<RankStatus> views, Time now);
  void clear() { nodes_.clear(); }

  /// Whether every node whose ranks run, and that can tell, has told that they are still.
  bool is_complete(const std::vector<Node>& nodes) const;
  /// The ranks of those nodes.
  std::vector<RankStatus> ranks(const std::vector<Node>& nodes, Time now) const;
  /// Whether it is one of that node's.
  bool has(NodeId node, int rank) const;

 private:
  struct Told {
    std::vector<RankStatus> views;
    Time when;
  };
  std::map<NodeId, Told> nodes_;
};

}  // namespace lockstep::launch
