#pragma once

#include <memory>
#include <vector>

#include "ddp_state.hpp"

namespace lockstep::parallel {

/// Sends the tensors that have a history through one node and leaves the others as they are. When the loss
/// uses some of them only, the others' parameters still see an (undefined) gradient, which the reducer takes
/// as "unused"; and in the first backward of a static graph the node queues the reduction of all parameters.
std::vector<at::Tensor> through_output_node(const std::shared_ptr<DdpState>& state,
                                            const std::vector<at::Tensor>& outputs);

/// In a forward within join(): tells the ranks that are through that this one is not, and learns which are.
/// *Collective*. Throws Error where some are and the options forbid it.
void meet_joined_ranks(DdpState& state);

}  // namespace lockstep::parallel
