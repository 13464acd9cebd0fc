#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/run_axis.hpp"

namespace lockstep::launch {

/// What a page is made of besides its runs.
struct PageOptions {
  ReportAxis axis = ReportAxis::step;
  /// Whether noisy curves are smoothed.
  bool smooths = true;
  /// The time of writing, in seconds since 1970.
  double now = 0;
  /// A browser loads the page again after so many seconds; 0: never.
  int refresh_seconds = 0;
  std::string lockstep_version = {};
  /// The name of this host, and facts about it, in their order.
  std::string host = {};
  std::vector<std::pair<std::string, std::string>> host_facts = {};
};

/// A run without an end whose files have not changed for so many seconds has been stopped, or hangs.
inline constexpr double kSilentSeconds = 600;

}  // namespace lockstep::launch
