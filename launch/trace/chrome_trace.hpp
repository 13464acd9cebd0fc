#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trace/rank_trace.hpp"
#include "trace/trace_report.hpp"

namespace lockstep::launch {

/// The traces in the format of chrome://tracing and ui.perfetto.dev. Each rank is a process, with a lane for
/// its operations, one for the time in which it waited for the last rank, and one per thread for the
/// program's own ranges. Overlapping operations get additional lanes.
nlohmann::json chrome_trace(const std::vector<RankTrace>& traces,
                            const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
