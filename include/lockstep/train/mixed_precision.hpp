#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parallel/unit.hpp"

namespace lockstep {

/// The dtypes in which a model computes; its parameters, gradients and optimizer states keep theirs. Names as
/// in Accelerate's `mixed_precision`. 16-bit dtypes halve the memory of activations, and are faster on
/// hardware that multiplies them (CUDA devices; CPUs with AMX or AVX512_BF16).
enum class MixedPrecision {
  no,    ///< The dtypes of the parameters.
  bf16,  ///< Matrix products and convolutions in bfloat16, as torch.autocast chooses; CPUs and CUDA.
  fp16,  ///< The same in float16, with a GradScaler; CUDA only.
};

/// While it exists, LibTorch's operations in this thread run under autocast (torch.autocast); the end of a
/// nested one restores the previous state. Created by Accelerator::autocast; prepared models do so by
/// themselves. *Local*.
class [[nodiscard]] Autocast {
 public:
  /// For the type of `device`. MixedPrecision::no disables autocast, for a part that must be exact, such as a
  /// loss that sums many small numbers.
  Autocast(const at::Device& device, MixedPrecision precision);
  /// The outermost one also drops the cached 16-bit copies of parameters.
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_on_;
  at::ScalarType dtype_before_;
};

/// The result of `forward` under Autocast, with its float16 and bfloat16 tensors (see
/// parallel::visit_tensors) in float32; that of `forward` itself for MixedPrecision::no. *Local*.
template <class Forward>
auto in_precision(const at::Device& device, MixedPrecision precision, const Forward& forward) {
  if (precision == MixedPrecision::no) return forward();
  const Autocast cast(device, precision);
  auto output = forward();
  parallel::visit_tensors(output, [](at::Tensor& tensor) {
    if (c10::isReducedFloatingType(tensor.scalar_type())) tensor = tensor.to(at::kFloat);
  });
  return output;
}

}  // namespace lockstep
