#pragma once

#include <string>
#include <vector>

#include "trace/merged_trace.hpp"
#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// What the traces tell, for a person: where each rank is, the last collective that all have ended, the first
/// one where they differ or somebody is missing, the longest waits, and who came late on average.
std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
