#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// One collective as all ranks saw it. Pointers lead into the traces that it was made of.
struct MergedCollective {
  std::string group;
  std::uint64_t number = 0;
  std::map<int, const TracedOperation*> by_rank;
  /// Ranks of the group whose trace reaches back that far, and does not have it.
  std::vector<int> missing;

  bool is_mismatch() const;
  bool is_complete() const { return missing.empty(); }
  bool has_ended() const;
  std::int64_t first_arrival() const;
  std::int64_t last_arrival() const;
};

/// The collectives of all groups, each group's in order. Those that a rank may have forgotten are left out.
std::vector<MergedCollective> merge(const std::vector<RankTrace>& traces);

/// How a rank behaved in the collectives that all have come to.
struct Lateness {
  int rank = 0;
  int collectives = 0;
  /// How often it came last.
  int last = 0;
  /// Sums, in seconds: how long the first one had to wait for it, and how long it waited for the last one.
  double late = 0;
  double waited = 0;
};

std::vector<Lateness> lateness_of(const std::vector<RankTrace>& traces,
                                  const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
