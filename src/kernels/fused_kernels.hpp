#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/kernels/fused_kernels.hpp"

namespace lockstep::kernels {

/// Whether fused kernels may be used: see FusedKernels. Throws UsageError if LOCKSTEP_FUSED_KERNELS is
/// neither auto nor off.
bool use_fused();

/// The dtype in which fused kernels compute with `input`: bfloat16 or float16, that of autocast for its
/// device if that is on, otherwise its own. Nothing where the operations of LibTorch are used: for tensors
/// that are not on a GPU, for other dtypes, and if fused kernels are off.
std::optional<at::ScalarType> fused_dtype(const at::Tensor& input);

}  // namespace lockstep::kernels
