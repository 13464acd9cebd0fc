#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// In what numbers a model computes; its parameters, gradients and optimizer states stay as they are. Names
/// as in Accelerate's `mixed_precision`. Half-wide numbers take half the memory for activations, and are
/// faster where the hardware multiplies them (CUDA devices; CPUs with AMX or AVX512_BF16).
enum class MixedPrecision {
  no,    ///< In those of its parameters.
  bf16,  ///< Matrix products and convolutions in bfloat16, as torch.autocast chooses; CPUs and CUDA.
  fp16,  ///< Likewise in float16, with a GradScaler; CUDA only.
};

/// While it lives, LibTorch's operations of this thread run under autocast (torch.autocast); nested ones give
/// back what was before. Made by Accelerator::autocast; models that were prepared do it by themselves.
/// *Local*.
class [[nodiscard]] Autocast {
 public:
  /// On `device`'s kind of devices. MixedPrecision::no switches autocast off, for a part that must be exact,
  /// such as a loss that sums many small numbers.
  Autocast(const at::Device& device, MixedPrecision precision);
  /// The outermost one also drops the half-wide copies of parameters that were made on the way.
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_on_;
  at::ScalarType dtype_before_;
};

}  // namespace lockstep
