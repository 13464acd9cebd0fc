#pragma once

#include <memory>
#include <vector>

#include "parallel/ddp_state.hpp"

namespace lockstep::parallel {

/// Passes the tensors that have a grad_fn through one node and returns the others unchanged. If the loss uses
/// only some of them, the parameters of the others still get an (undefined) gradient, which the reducer
/// counts as "unused". In the first backward of a static graph, the node queues the reduction of all
/// parameters.
std::vector<at::Tensor> through_output_node(const std::shared_ptr<DdpState>& state,
                                            const std::vector<at::Tensor>& outputs);

}  // namespace lockstep::parallel
