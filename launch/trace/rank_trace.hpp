#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
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
  /// The clock of a report plus this is the time since 1970 on this rank's host.
  std::int64_t wall_offset = 0;
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

}  // namespace lockstep::launch
