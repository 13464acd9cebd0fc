#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/world.hpp"

namespace check {

/// Latency and bandwidth between two ranks.
struct Link {
  int first = 0;
  int second = 0;
  /// One way, in seconds.
  double latency = 0;
  /// Bytes a second.
  double bandwidth = 0;
};

/// Measures links one after the other: every pair of ranks where there are up to 8, else every pair of nodes
/// (between their first ranks). The same list at every rank. *Collective*.
std::vector<Link> measure_links(const lockstep::ProcessGroup& group, const std::vector<int>& nodes_of_ranks);

/// A link that is far behind the median of all: half its bandwidth, or three times its latency.
bool is_slow(const Link& link, const std::vector<Link>& all);

/// A line a link, the slow ones marked.
std::string links_text(const std::vector<Link>& links);

}  // namespace check
