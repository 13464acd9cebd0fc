#pragma once

#include <vector>

#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// Moves the times of each host but the first one's so that all hosts' collectives end together: by the
/// median over those that both hosts' first ranks have ended. Hosts without a common one keep their clocks.
void set_clocks(std::vector<RankTrace>& traces);

}  // namespace lockstep::launch
