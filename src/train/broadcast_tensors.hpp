#pragma once

#include <functional>
#include <string>

#include "../checkpoint/tensor_source.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::train {

/// The tensors of rank `root`, whose names and shapes the other ranks do not know, on the group's device.
/// What is given on other ranks is ignored. A rank gets what `take` makes of each there (the tensor itself,
/// without one), and nothing where that is undefined; it never holds more than one other. *Collective*.
using TakeTensor = std::function<at::Tensor(const std::string& name, const at::Tensor& tensor)>;
TensorMap broadcast_tensors(const ProcessGroup& group, const TensorMap& tensors, int root = 0,
                            const TakeTensor& take = {});

/// Likewise; rank `root` makes or reads each when its turn comes. Where it cannot, all ranks throw what says
/// why: DataError.
TensorMap broadcast_tensors(const ProcessGroup& group, const TensorSource& tensors, int root,
                            const TakeTensor& take);

}  // namespace lockstep::train
