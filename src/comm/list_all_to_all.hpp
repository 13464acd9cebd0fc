#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace lockstep::comm {

/// c10d's all_to_all of lists, done by the backend's alltoall_base: for one that has none for lists. Tensors
/// of one dtype, whichever it is, of any shapes and strides. Throws UsageError. *Collective*.
c10::intrusive_ptr<c10d::Work> list_all_to_all(c10d::Backend& backend, const std::vector<at::Tensor>& outputs,
                                               const std::vector<at::Tensor>& inputs,
                                               const c10d::AllToAllOptions& options);

}  // namespace lockstep::comm
