#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// A node that has joined.
struct Node {
  NodeId id = 0;
  NodeInfo info;
  /// Its number in the current round, or in the last one that it took part in.
  std::optional<int> group_rank;
  /// Whether its ranks belong to the current round.
  bool active = false;
  /// Whether none of its processes of the current round is left.
  bool ended = false;
  /// The signal that told its launcher to end; 0: none did.
  int drain_signal = 0;
  std::chrono::steady_clock::time_point last_heard;
  /// How its ranks of the current round were at its last report; none: there was none.
  std::vector<RankStatus> ranks;
  std::chrono::steady_clock::time_point reported;
  /// Bytes of other nodes' stacks that it got since it last asked for them.
  std::size_t stacks_passed = 0;

  bool running() const { return active && !ended; }
  std::string text() const { return describe(info, active ? group_rank : info.node_rank); }
};

/// The nodes that may take part in the next round, in the order of their ranks, `max_nodes` at most: by node
/// rank where the users gave them; else those of the last round in their order, then the coordinator's node,
/// then by host name ("node9" before "node10") and process. Nodes that leave are left out.
std::vector<Node*> candidates(std::vector<Node>& nodes, int max_nodes);

/// The places of the nodes in that order; round and restart counts are left to the caller. Ranks of a node
/// are one block, and so are ranks of a role on a node, as torchrun numbers them.
std::vector<Assignment> assign_ranks(const std::vector<Node*>& order);

/// "node 0 = a (ranks 0-1), node 1 = b (rank 2)".
std::string rank_map(const std::vector<Node*>& order, const std::vector<Assignment>& assignments);

/// "1 node", "2 nodes".
std::string nodes_text(int count);

/// "2", or "2:4": numbers of nodes as --nnodes takes them.
std::string range_text(int least, int most);

}  // namespace lockstep::launch
