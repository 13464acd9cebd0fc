#pragma once

#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::train {

/// Copies rank 0's values into the tensors of the other ranks, which have the same shapes. *Collective*.
void broadcast_values(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

/// Rank 0's tensors, whose names and shapes the other ranks do not know, on the group's device. What is given
/// on other ranks is ignored. *Collective*.
TensorMap broadcast_tensors(const ProcessGroup& group, const TensorMap& tensors);

}  // namespace lockstep::train
