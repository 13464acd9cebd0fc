#pragma once

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// Undefined where they are not wanted.
struct SyncBatchNormGradients {
  at::Tensor input, weight, bias;
};

/// The gradients of sync_batch_norm() in operations that autograd records, for gradients of gradients.
/// `mean`, `inverse` (1 / sqrt(variance + eps)): forward's values [channels]. *Collective*, and so is its
/// backward.
SyncBatchNormGradients differentiable_sync_batch_norm_backward(
    const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight, bool has_bias,
    const at::Tensor& mean, const at::Tensor& inverse, double eps, const ProcessGroup& group);

}  // namespace lockstep
