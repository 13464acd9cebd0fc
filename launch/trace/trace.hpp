#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// One operation of one rank. Times are nanoseconds of a clock that all ranks of a report share; 0: not yet.
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

/// What one rank has written.
struct RankTrace {
  int rank = 0;
  int world_size = 0;
  std::string host;
  std::string reason;
  std::vector<TracedOperation> operations;
  std::vector<TracedSpan> spans;
  /// The ranks of each group, by its name.
  std::map<std::string, std::vector<int>> groups;
};

/// The traces of a folder, by rank. Times are those of the clock of the lowest rank's host: the clock of
/// another host is set by the ends of collectives, which all ranks leave at about the same time. Throws
/// DataError naming the file that is no trace, or the folder that has none.
std::vector<RankTrace> read_traces(const std::filesystem::path& folder);

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
  /// When the first rank came to it, and the last one.
  std::pair<std::int64_t, std::int64_t> arrivals() const;
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
