#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// One operation of one rank. Times are in nanoseconds, on a clock that all ranks of a report share; 0: not
/// yet.
struct TracedOperation {
  std::string group;
  std::uint64_t number = 0;
  bool is_message = false;
  std::string name;
  std::string label;
  /// What all ranks must agree on.
  std::string fingerprint;
  std::string state;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  /// "all_reduce #412 (bucket 2)".
  std::string text() const;
};

struct TracedSpan {
  std::string name;
  long thread = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The trace of one rank.
struct RankTrace {
  /// The name of the run, greater than an earlier run's; empty: written by an older version.
  std::string run;
  int rank = 0;
  int world_size = 0;
  std::string host;
  std::string reason;
  std::vector<TracedOperation> operations;
  std::vector<TracedSpan> spans;
  struct Group {
    std::vector<int> ranks;
    /// The number of the last collective that this rank has started.
    std::uint64_t last_collective = 0;
  };
  /// By name.
  std::map<std::string, Group> groups;
};

/// The traces of the latest run in a folder, by rank; those of earlier runs are left out. Times are those of
/// the clock of the lowest rank's host. The clocks of other hosts are adjusted by the ends of collectives,
/// which all ranks leave at about the same time. Throws DataError that names a file that is not a trace, or a
/// folder without any of the latest run.
std::vector<RankTrace> read_traces(const std::filesystem::path& folder);

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

/// The traces in the format of chrome://tracing and ui.perfetto.dev. Each rank is a process, with a lane for
/// its operations, one for the time in which it waited for the last rank, and one per thread for the
/// program's own ranges. Overlapping operations get additional lanes.
nlohmann::json chrome_trace(const std::vector<RankTrace>& traces,
                            const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
