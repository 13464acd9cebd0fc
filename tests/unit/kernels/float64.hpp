#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "kernels/self_check.hpp"

// Comparison of fused kernels with float64.
namespace lockstep::kernels {

/// Relative to the greatest element.
inline void expect_within(const at::Tensor& got, const at::Tensor& exact, double tolerance,
                          const std::string& what) {
  ASSERT_EQ(got.sizes(), exact.sizes()) << what;
  const double scale = exact.abs().max().item<double>() + 1e-30;
  EXPECT_LE((got.to(at::kDouble) - exact).abs().max().item<double>(), tolerance * scale) << what;
}

inline at::Tensor drawn(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes).to(dtype).requires_grad_();
}
inline at::Tensor exactly(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

/// Of the last digit, relative.
inline double unit_of(at::ScalarType dtype) { return dtype == at::kHalf ? 0x1p-11 : 0x1p-8; }

}  // namespace lockstep::kernels
