#pragma once

#include <functional>
#include <vector>

#include "parallel/ddp_state.hpp"

namespace lockstep::parallel {

/// In a forward within join(): tells the ranks that have finished that this one has not, and learns which
/// have. *Collective*. Throws Error if any rank has finished and the options forbid it.
void meet_joined_ranks(DdpState& state);

/// DistributedDataParallelBase::join_after() of a module with a reducer. *Collective*.
void run_joined(DdpState& state, const std::function<void()>& body, const JoinOptions& options,
                const std::function<std::vector<NamedTensor>()>& buffers,
                const std::function<std::vector<NamedTensor>()>& parameters);

}  // namespace lockstep::parallel
