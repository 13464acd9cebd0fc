#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// In what numbers a model computes; its parameters stay as they are.
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
  /// MixedPrecision::no switches autocast off, for a part that must be exact.
  Autocast(const at::Device& device, MixedPrecision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_on_;
  at::ScalarType dtype_before_;
};

}  // namespace lockstep
