#pragma once

#include <string>
#include <vector>

#include "report/page_options.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// The plots of a report as HTML.
struct PageFigures {
  /// The losses; learning rate, gradient norm, evaluations, speed and memory; all other values.
  std::string losses, usual, others;
  /// Sentences on what was not logged, so that no plot shows it.
  std::vector<std::string> missing;
};

/// Runs have the color of their number. *Local*.
PageFigures draw_figures(const std::vector<RunRecord>& runs, const PageOptions& options);

}  // namespace lockstep::launch
