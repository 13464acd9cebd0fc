#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/core/world.hpp"

namespace check {

/// Tries a TCP connection from every rank to every other, before anything is built on them. Returns, at every
/// rank, a line for each that cannot be made: "rank 1 (node1) cannot reach rank 0 (node0) at 10.0.0.1:40001:
/// ...". *Collective*. Throws TimeoutError naming the rank that did not take part.
std::vector<std::string> unreachable_pairs(const lockstep::World& world, const lockstep::Store& store);

/// Measures links one after the other: every pair of ranks where there are up to 8, else every pair of nodes
/// (between their first ranks). A line a link; those far behind the median (half its bandwidth, three times
/// its latency) are marked SLOW. The same text at every rank. *Collective*.
std::string link_table(const lockstep::ProcessGroup& group, const std::vector<int>& nodes_of_ranks);

/// "12.3 us", "4.56 ms", "1.20 s".
std::string time_text(double seconds);
/// "1.23 GB/s".
std::string bandwidth_text(double bytes_per_second);

}  // namespace check
