#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// Gradients that were computed for a gradient of 1 of their loss; one may be undefined.
struct LossGradients {
  at::Tensor states, weight;
};

/// Whether the kernel takes them: dense, of one GPU, the states in bfloat16, the weight in that or in
/// float32; and `factor` a scalar in float32 there. False also where the kernel cannot be compiled.
bool takes_loss_factor(const LossGradients& gradients, const at::Tensor& factor);

/// Multiplies both by `factor`, with the bits of mul_(factor.to(dtype)): one launch, which touches neither if
/// it is 1.
void multiply_by_loss_factor(const LossGradients& gradients, const at::Tensor& factor);

}  // namespace lockstep::kernels
