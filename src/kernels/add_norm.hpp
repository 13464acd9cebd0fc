#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// The parameters of torch::nn::LayerNorm over the last dimension.
struct Norm {
  at::Tensor weight, bias;
  double epsilon = 1e-5;
};

/// Which results are wanted beside the norm in 16 bits.
struct AddNormWants {
  bool sum = false;
  bool wide = false;
};

struct AddNorm {
  /// The residual with the branch: in float32; undefined if not wanted.
  at::Tensor sum;
  /// Its norm in float16 or bfloat16, and in float32; the latter undefined if not wanted.
  at::Tensor narrow, wide;
};

/// Whether the kernel takes them: a float32 `residual` of a GPU, a `branch` of its shape in `dtype`
/// (undefined: none), float32 parameters, and a width that is a multiple of 4 and at most 8192. False also
/// where the kernel cannot be compiled.
bool takes_add_norm(const at::Tensor& residual, const at::Tensor& branch, const Norm& norm,
                    at::ScalarType dtype);

/// layer_norm(residual + branch), with a graph. Deterministic; no second derivatives.
AddNorm add_norm(const at::Tensor& residual, const at::Tensor& branch, const Norm& norm, at::ScalarType dtype,
                 const AddNormWants& wants);

}  // namespace lockstep::kernels
