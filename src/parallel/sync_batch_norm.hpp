#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// The running statistics of a batch normalization, for evaluation; undefined ones are not updated.
struct BatchNormStatistics {
  at::Tensor running_mean;
  at::Tensor running_var;
};

/// Normalizes `input` [rows, channels, ...] by the mean and variance of each channel over the rows of all
/// ranks, as one process would over the whole batch; differentiable: torch.nn.SyncBatchNorm in training.
/// Ranks may have different numbers of rows, including none. `weight` and `bias` [channels] may be undefined.
/// The running statistics move toward the batch's (with the unbiased variance) by the fraction `momentum`. On
/// CPUs, sums are computed in float64. On CUDA, the kernels of PyTorch's class give its results, without
/// synchronizing the host.
///
/// Gradients of gradients (create_graph) are those of one process over the whole batch, too.
///
/// The gradients of `weight` and `bias` are this rank's share, as DistributedDataParallel expects.
/// *Collective*, and so is its backward. Throws UsageError if the input is not floating-point or has fewer
/// than two dimensions, and on CPUs if all ranks together have fewer than two values per channel.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const BatchNormStatistics& running, double momentum, double eps,
                           const ProcessGroup& group);

}  // namespace lockstep
