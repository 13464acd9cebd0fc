#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "net/deadline.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// A node that has joined.
struct Node {
  NodeId id = 0;
  NodeInfo info;
  /// Its number in the current round, or in the last one in which it took part.
  std::optional<int> group_rank;
  /// Whether its ranks belong to the current round.
  bool active = false;
  /// Whether no process of its current round is left.
  bool ended = false;
  /// The signal by which its launcher was asked to end; 0: none.
  int drain_signal = 0;
  net::Deadline last_message_time;
  /// Its ranks of the current round at the last report; empty: there was no report.
  std::vector<RankStatus> ranks;
  net::Deadline reported;
  /// Bytes of other nodes' stacks that it received since its last request.
  std::size_t stacks_passed = 0;

  bool running() const { return active && !ended; }
  std::string text() const { return describe(info, active ? group_rank : info.node_rank); }
};

/// The nodes of the next round, at most `max_nodes`, in the order of their ranks: by node rank if users gave
/// one; then those of the last round in their order; then the coordinator's node; then by host name ("node9"
/// before "node10") and process. Nodes that were asked to end are left out.
std::vector<Node*> candidates(std::vector<Node>& nodes, int max_nodes);

/// The assignments of the nodes in that order; the caller sets round and restart counts. Ranks of a node are
/// consecutive, and so are its ranks within its role, as in torchrun.
std::vector<Assignment> assign_ranks(const std::vector<Node*>& order);

/// "a, b, c"; of more than 16 the first 15, how many are left out, and the last: every node is told the text.
std::string first_and_last(const std::vector<std::string>& items);

/// "node 0 = a (ranks 0-1), node 1 = b (rank 2)", shortened as first_and_last does.
std::string rank_map(const std::vector<Node*>& order, const std::vector<Assignment>& assignments);

/// "1 node", "2 nodes".
std::string nodes_text(int count);

/// "2", or "2:4": numbers of nodes as in --nnodes.
std::string range_text(int least, int most);

}  // namespace lockstep::launch
