#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/cuda_kernel.hpp"

namespace lockstep::optim {

/// Which of Adam's kernels.
struct AdamKind {
  bool is_decoupled, has_maxima, maximizes;
};

/// Whether steps by the kernel, on small tensors of the device, have the bits of steps by LibTorch's; on a
/// CPU, whose kernels round otherwise, nearly the same values. Waits for the device. *Local*.
bool agrees_with_libtorch(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device);

/// The same, once for each kernel: later calls know the answer. Where it is no, one warning says so. False,
/// without an answer, while the current stream is recorded. Any thread.
bool is_proven(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device);

/// For tests: whether kernels that are emulated on the CPU have to be proven too.
void prove_on_cpu(bool proves);
bool proves_on_cpu() noexcept;

}  // namespace lockstep::optim
