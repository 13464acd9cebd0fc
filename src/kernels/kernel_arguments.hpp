#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/aligned.hpp"

// Tensors as arguments of kernels.
namespace lockstep::kernels {

/// Null for an undefined tensor.
inline const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
inline void* data_to(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

/// As kernels read it: dense, aligned and in `dtype`; a copy if it is not. Undefined stays undefined.
inline at::Tensor readable(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.defined()) return tensor;
  const at::Tensor dense = tensor.to(dtype).contiguous();
  return is_aligned(dense) ? dense : dense.clone();
}

}  // namespace lockstep::kernels
