#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// Who keeps what of groups of parameters, given by their numbers of elements: `owner[g][i]` of parameter i
/// of group g. In each group the largest parameter comes first and goes to the rank that has the fewest
/// elements so far, the first of such ranks: the rule of torch.distributed.optim.ZeroRedundancyOptimizer.
std::vector<std::vector<int>> greedy_partition(const std::vector<std::vector<std::int64_t>>& elements,
                                               int ranks);

}  // namespace lockstep::optim
