#pragma once

#include <string>
#include <vector>

#include "plan/run_options.hpp"

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
  relay,
};

/// Standard output and standard error of one rank.
struct RankOutput {
  Sink out = Sink::console;
  Sink err = Sink::console;
};

/// Works out --redirects, --tee and --local-ranks-filter for each of the `ranks` of this node. Throws
/// UsageError.
std::vector<RankOutput> plan_output(const RunOptions& options, int ranks);

}  // namespace lockstep::launch
