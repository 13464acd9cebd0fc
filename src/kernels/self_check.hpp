#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

// Fused operations prove themselves on the GPU at hand before they are used.
namespace lockstep::kernels {

/// Whether a fused operation may be used on `device`: whether it computes there what LibTorch's operations
/// do. The first call for an operation, such as "layer normalization of 768 in bf16", runs `check` in a
/// thread of its own, where no autocast, no checkpoint and no recorded stream is; what that throws is the
/// reason of a warning, and the answer is false for the rest of the process. Takes some milliseconds. False
/// while the current stream is recorded if there was no check before; a check may wait for the device. Any
/// thread.
bool is_proven(const std::string& operation, const at::Device& device, const std::function<void()>& check);

using Tensors = std::vector<at::Tensor>;

/// An operation that a check runs.
struct Comparison {
  /// Leaves with gradients.
  Tensors inputs;
  std::function<Tensors(const Tensors& inputs)> fused;
  /// By LibTorch's operations, of the same inputs in float64.
  std::function<Tensors(const Tensors& inputs)> reference;
  /// The largest difference, relative to the largest element.
  double tolerance = 0.02;
};

/// Compares the results and their gradients by the inputs. Throws Error that says which is how far apart.
void compare(const Comparison& comparison);

/// Throws Error, which begins with `what`, if a distance is larger than `tolerance` times the largest
/// element.
void expect_near(const std::string& what, const at::Tensor& got, const at::Tensor& exact, double tolerance);

/// Values between -1 and 1 that look irregular, with a gradient; no random numbers.
at::Tensor waves(at::IntArrayRef sizes, at::ScalarType dtype, const at::Device& device, double phase);

}  // namespace lockstep::kernels
