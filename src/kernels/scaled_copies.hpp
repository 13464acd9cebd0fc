#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::kernels {

/// Whether the kernel takes them: dense tensors of a GPU in float32, float16 or bfloat16, all of `from` in
/// one dtype and all of `to` in one, pairs of one size. False also where the kernel cannot be compiled.
bool takes_scaled_copies(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to);

/// Writes from[i] * factor to to[i], with the bits of to[i] = from[i].to(dtype) * factor: one launch for up
/// to 240 tensors, and one pass.
void write_scaled_copies(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to,
                         double factor);

}  // namespace lockstep::kernels
