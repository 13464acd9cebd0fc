#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// The statistics of a batch normalisation that are kept for evaluation; undefined ones are not kept.
struct BatchNormStatistics {
  at::Tensor running_mean;
  at::Tensor running_var;
};

/// Normalises `input` [rows, channels, ...] by the mean and variance of each channel over the rows of all
/// ranks, as one process would over the whole batch, and with a history: torch.nn.SyncBatchNorm in training.
/// Ranks may have different numbers of rows, none among them. `weight` and `bias` [channels] may be
/// undefined. The running statistics move by the share `momentum` towards the batch's (the unbiased
/// variance). On CPUs sums are kept in float64; on CUDA the kernels of PyTorch's class give its
/// results, and the host does not wait.
///
/// The gradients of `weight` and `bias` are this rank's share, as DistributedDataParallel expects.
/// *Collective*, and its backward too. Throws UsageError for an input of fewer than two dimensions, and on
/// CPUs where all ranks together have fewer than two values a channel.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const BatchNormStatistics& running, double momentum, double eps,
                           const ProcessGroup& group);

}  // namespace lockstep
