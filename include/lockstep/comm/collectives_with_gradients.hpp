#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

// Collectives that autograd records, as torch.distributed.nn.functional's. The loss that a rank's backward
// differentiates is the sum of all ranks' losses; DistributedDataParallel divides it by their number.
// Backward is *Collective* too: every rank must call it, with the same graph around the collective. Gradients
// of gradients work.

/// The ranks' tensors one after another along dimension 0, in rank order: [ranks * rows, ...] of [rows, ...].
/// Backward adds up the gradients that the ranks have for this rank's rows, and returns them. For losses that
/// compare the samples of all ranks (contrastive ones). All ranks need the same shape. *Collective*. Throws
/// UsageError for a tensor without dimensions.
at::Tensor all_gather_with_gradients(const ProcessGroup& group, const at::Tensor& rows);

/// The sum of the ranks' tensors, on every rank; `tensor` is not changed. Backward adds up the ranks'
/// gradients. *Collective*.
at::Tensor all_reduce_with_gradients(const ProcessGroup& group, const at::Tensor& tensor);

}  // namespace lockstep
