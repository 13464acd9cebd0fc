#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::train {

/// Copies rank 0's values into the tensors of the other ranks, which have the same shapes. *Collective*.
void broadcast_values(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

/// The tensors of rank `root`, whose names and shapes the other ranks do not know, on the group's device.
/// What is given on other ranks is ignored. A rank gets what `take` makes of each there (the tensor itself,
/// without one), and nothing where that is undefined; it never holds more than one other. *Collective*.
TensorMap broadcast_tensors(
    const ProcessGroup& group, const TensorMap& tensors, int root = 0,
    const std::function<at::Tensor(const std::string& name, const at::Tensor& tensor)>& take = {});

}  // namespace lockstep::train
