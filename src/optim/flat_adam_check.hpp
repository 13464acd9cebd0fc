#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cuda_kernel.hpp"

namespace lockstep::optim {

/// Which of Adam's kernels.
struct AdamKind {
  bool is_decoupled, has_maxima, maximizes;
};

/// Whether steps by the kernel, on small tensors of the device, have the bits of steps by LibTorch's; on a
/// CPU, whose kernels round otherwise, nearly the same values. Waits for the device. *Local*.
bool agrees_with_libtorch(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device);

/// The same as a check of kernels::is_proven(): throws Error if they differ. *Local*.
void check_flat_adam(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device);

}  // namespace lockstep::optim
