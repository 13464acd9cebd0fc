#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// The activation of a gate. The kernels have the same numbers.
enum class Gate { silu = 0, gelu = 1, gelu_tanh = 2 };

/// Whether the kernel takes them: [..., width] of a GPU in float16 or bfloat16, and a width that is a
/// multiple of 8. Without `up`, `gate` has both side by side, [..., 2 * width]. False also where the kernel
/// cannot be compiled.
bool takes_gate(const at::Tensor& gate, const at::Tensor& up, Gate activation);

/// activation(gate) * up, with a graph, in one pass each way. Computed in float32 and rounded once. No second
/// derivatives. For what takes_gate() takes.
at::Tensor activate_gate(const at::Tensor& gate, const at::Tensor& up, Gate activation);

}  // namespace lockstep::kernels
