#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// A root mean square norm over the last dimension: values / sqrt(mean(values^2) + epsilon), times the
/// weight with `offset` added to it.
struct RmsNormParameters {
  at::Tensor weight;
  double epsilon = 1e-6;
  double offset = 0;
};

struct AddRmsNorm {
  /// The residual with the branch, in the residual's dtype; undefined if not wanted.
  at::Tensor sum;
  /// Its norm in float16 or bfloat16.
  at::Tensor normed;
};

/// Whether the kernel takes them: a `residual` of a GPU in float32 or in `dtype`, a `branch` of its shape in
/// `dtype` (undefined: none), a weight in float32 or in `dtype`, and a width that is a multiple of 4 and at
/// most 8192. False also where the kernel cannot be compiled.
bool takes_rms_norm(const at::Tensor& residual, const at::Tensor& branch, const RmsNormParameters& norm,
                    at::ScalarType dtype);

/// The norm of residual + branch, with a graph. It is computed in float32 and rounded once. Deterministic; no
/// second derivatives.
AddRmsNorm add_rms_norm(const at::Tensor& residual, const at::Tensor& branch, const RmsNormParameters& norm,
                        at::ScalarType dtype, bool wants_sum = true);

}  // namespace lockstep::kernels
