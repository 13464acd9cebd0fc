#pragma once

#include <string>
#include <vector>

#include "report/page_options.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// The report of a run, or of several beside each other: one HTML file without scripts, which loads nothing.
/// *Local*.
std::string report_page(const std::vector<RunRecord>& runs, const PageOptions& options);

}  // namespace lockstep::launch
