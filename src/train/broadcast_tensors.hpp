#pragma once

#include <functional>
#include <string>

#include "checkpoint/tensor_source.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::train {

/// Broadcasts rank `root`'s tensors, whose names and shapes the other ranks do not know, on the group's
/// device. `tensors` of the other ranks is ignored. The result of each rank has what `take` returns there for
/// each tensor (without `take`, the tensor itself), and omits undefined tensors; a rank holds at most one
/// other tensor at a time. A group of one rank returns `tensors` and does not call `take`. *Collective*.
using TakeTensor = std::function<at::Tensor(const std::string& name, const at::Tensor& tensor)>;
TensorMap broadcast_tensors(const ProcessGroup& group, const TensorMap& tensors, int root = 0,
                            const TakeTensor& take = {});

/// Same, but rank `root` creates or reads each tensor when it is sent. If that throws DataError, all ranks
/// throw it.
TensorMap broadcast_tensors(const ProcessGroup& group, const TensorSource& tensors, int root,
                            const TakeTensor& take);

}  // namespace lockstep::train
