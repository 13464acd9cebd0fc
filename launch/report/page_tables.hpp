#pragma once

#include <string>
#include <vector>

#include "report/page_options.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// The parts of a report that are text and tables, as HTML; empty if there is nothing to say. All *Local*.

/// "It made 320 of 320 steps ...", the loss, restarts: what happened, in sentences.
std::string run_story(const RunRecord& run, const PageOptions& options);
/// The most important numbers of one run.
std::string run_tiles(const RunRecord& run);
/// The same for several runs, a row for each.
std::string comparison_table(const std::vector<RunRecord>& runs, const PageOptions& options);
/// Arguments in which the runs differ.
std::string differing_arguments(const std::vector<RunRecord>& runs);
/// Every number that was logged: first, last, lowest and highest.
std::string values_table(const std::vector<RunRecord>& runs);
/// The operators that took the longest, from the profiler's trace.
std::string operators_table(const RunRecord& run);
/// Restarts, failures and checkpoints.
std::string events_table(const RunRecord& run);
std::string arguments_list(const RunRecord& run);
/// Hosts with their hardware, ranks, memory and versions. The hardware of a run that did not record it is
/// looked up if the page is written on its host.
std::string machine_list(const RunRecord& run, const PageOptions& options);

}  // namespace lockstep::launch
