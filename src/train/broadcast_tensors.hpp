#pragma once

#include <functional>
#include <string>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::train {

/// The tensors of rank `root`, whose names and shapes the other ranks do not know, on the group's device.
/// What is given on other ranks is ignored. A rank gets what `take` makes of each there (the tensor itself,
/// without one), and nothing where that is undefined; it never holds more than one other. *Collective*.
TensorMap broadcast_tensors(
    const ProcessGroup& group, const TensorMap& tensors, int root = 0,
    const std::function<at::Tensor(const std::string& name, const at::Tensor& tensor)>& take = {});

}  // namespace lockstep::train
