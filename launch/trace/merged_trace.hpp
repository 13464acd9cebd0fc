#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
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

/// What the traces tell, for a person: where each rank is, the last collective that all have ended, the first
/// one where they differ or somebody is missing, the longest waits, and who came late on average.
std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged);

/// The traces in the format of chrome://tracing and ui.perfetto.dev: a process for each rank, with a lane for
/// its operations, one for the part of them in which it waited for the last rank to come, and one for the
/// program's own ranges of each of its threads. Operations that overlap get further lanes.
nlohmann::json chrome_trace(const std::vector<RankTrace>& traces,
                            const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
