#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trace/merged_trace.hpp"
#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// The traces in the format of chrome://tracing and ui.perfetto.dev: a process for each rank, with a lane for
/// its operations, one for the part of them in which it waited for the last rank to come, and one for the
/// program's own ranges of each of its threads. Operations that overlap get further lanes.
nlohmann::json chrome_trace(const std::vector<RankTrace>& traces,
                            const std::vector<MergedCollective>& merged);

}  // namespace lockstep::launch
