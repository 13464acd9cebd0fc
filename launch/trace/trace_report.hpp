#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// One collective on all ranks. The pointers refer to the traces.
struct MergedCollective {
  std::string group;
  std::uint64_t number = 0;
  std::map<int, const TracedOperation*> by_rank;
  /// Ranks of the group that have a trace and had not started this collective.
  std::vector<int> missing;

  bool is_mismatch() const;
  bool is_complete() const { return missing.empty(); }
  bool has_ended() const;
  /// When the first and the last rank arrived.
  std::pair<std::int64_t, std::int64_t> arrivals() const;
};

/// The collectives of all groups, in order per group. Those that some rank may no longer have recorded are
/// left out.
std::vector<MergedCollective> merge(const std::vector<RankTrace>& traces);

/// Statistics of a rank over the collectives at which all ranks arrived.
struct Lateness {
  int rank = 0;
  int collectives = 0;
  /// How often it arrived last.
  int last = 0;
  /// Sums in seconds: how long the first rank waited for it, and how long it waited for the last one.
  double late = 0;
  double waited = 0;
};

std::vector<Lateness> lateness_of(const std::vector<RankTrace>& traces,
                                  const std::vector<MergedCollective>& merged);

/// A report for the user: where each rank is, the last collective that all have completed, the first one
/// where ranks differ or are missing, the longest waits, and the mean lateness of each rank.
std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
