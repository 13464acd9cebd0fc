#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Where one stream of a rank goes.
enum class Sink {
  /// The launcher's own stream, untouched.
  console,
  /// A file in the log folder.
  file,
  /// Nowhere.
  nothing,
  /// The console, line by line with the rank in front, and a file where there is a log folder.
  forward,
};

/// Standard output and standard error of one rank.
struct RankOutput {
  Sink out = Sink::console;
  Sink err = Sink::console;
};

/// What becomes of the ranks' output, worked out from the command line.
struct OutputConfig {
  /// The folder of this run's log files; empty: none are kept.
  std::string log_dir;
  /// One for each rank of this node.
  std::vector<RankOutput> outputs;
  /// What stands in front of teed lines, with ${role_name}, ${rank} and ${local_rank}; empty: "[role0]:".
  std::string line_prefix;
  /// Teed lines that hold any of these go to a file of their own, too.
  std::vector<std::string> out_filters;
  std::vector<std::string> err_filters;
  /// At this size a log file is set aside; 0: never.
  std::int64_t log_max_bytes = 0;
  /// Last lines of standard error that a failure report shows for a rank.
  int report_lines = 10;
};

/// Works out the options of output for the `ranks` of this node. `run_name` begins the name of the log
/// folder, which is not made here. Throws UsageError.
OutputConfig output_config(const RunOptions& options, int ranks, const std::string& run_name,
                           const Environment& environment);

/// "100M" in bytes; K, M and G count by 1024. Throws UsageError.
std::int64_t parse_size(const std::string& text);

}  // namespace lockstep::launch
