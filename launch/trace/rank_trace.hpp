#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
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

}  // namespace lockstep::launch
