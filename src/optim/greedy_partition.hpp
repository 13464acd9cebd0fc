#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// Assigns groups of parameters, given by their numbers of elements, to ranks: `owner[g][i]` is the rank of
/// parameter i of group g. In each group the largest parameter comes first and is assigned to the first rank
/// with the fewest elements so far: the rule of torch.distributed.optim.ZeroRedundancyOptimizer.
std::vector<std::vector<int>> greedy_partition(const std::vector<std::vector<std::int64_t>>& elements,
                                               int ranks);

}  // namespace lockstep::optim
