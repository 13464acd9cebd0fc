#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "kernels/add_norm.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

class FusedNorm : public ::testing::TestWithParam<std::int64_t> {};

/// Every use of the results: of GPT-2, which goes on with the sum, of BERT, which goes on with the norm, and
/// of a first norm without a branch.
TEST_P(FusedNorm, IsThatOfFloat64) {
  const std::int64_t width = GetParam();
  torch::manual_seed(width);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    if (dtype == at::kHalf && width != 132) continue;
    for (const bool has_branch : {true, false}) {
      for (const AddNormWants wants :
           {AddNormWants{.sum = true}, AddNormWants{.wide = true}, AddNormWants{}}) {
        const std::string what = "width " + std::to_string(width) + ", " + c10::toString(dtype) +
                                 (has_branch ? ", branch" : "") + (wants.sum ? ", sum" : "") +
                                 (wants.wide ? ", wide" : "");
        const at::Tensor residual = drawn({1, 3, width}), weight = drawn({width}), bias = drawn({width});
        const at::Tensor branch = has_branch ? drawn({1, 3, width}, dtype) : at::Tensor();
        const at::Tensor of_sum = torch::randn({1, 3, width}), of_wide = torch::randn({1, 3, width});
        const at::Tensor of_narrow = torch::randn({1, 3, width}).to(dtype);

        const at::Tensor residual64 = exactly(residual), weight64 = exactly(weight), bias64 = exactly(bias);
        Tensors inputs64{residual64, weight64, bias64}, inputs{residual, weight, bias};
        at::Tensor sum64 = residual64;
        if (has_branch) {
          inputs64.push_back(exactly(branch));
          inputs.push_back(branch);
          sum64 = sum64 + inputs64.back();
        }
        const at::Tensor norm64 = at::layer_norm(sum64, {width}, weight64, bias64, 1e-3);
        at::Tensor loss64 = (norm64 * of_narrow).sum();
        if (wants.sum) loss64 = loss64 + (sum64 * of_sum).sum();
        if (wants.wide) loss64 = loss64 + (norm64 * of_wide).sum();
        const auto gradients64 = torch::autograd::grad({loss64}, inputs64);

        testing::EmulatedKernels device;
        const Autocast cast(at::kCPU, dtype == at::kHalf ? MixedPrecision::fp16 : MixedPrecision::bf16);
        const Norm norm{.weight = weight, .bias = bias, .epsilon = 1e-3};
        ASSERT_TRUE(takes_add_norm(residual, branch, norm, dtype)) << what;
        const AddNorm got = add_norm(residual, branch, norm, dtype, wants);
        EXPECT_EQ(got.narrow.scalar_type(), dtype);
        expect_within(got.narrow, norm64, unit_of(dtype), what);
        Tensors outputs{got.narrow}, factors{of_narrow};
        if (wants.sum) {
          expect_within(got.sum, sum64, 1e-6, what);
          outputs.push_back(got.sum);
          factors.push_back(of_sum);
        }
        if (wants.wide) {
          expect_within(got.wide, norm64, 2e-6, what);
          outputs.push_back(got.wide);
          factors.push_back(of_wide);
        }
        const auto gradients = torch::autograd::grad(outputs, inputs, factors);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          EXPECT_EQ(gradients[i].scalar_type(), i == 3 ? dtype : at::kFloat) << what;
          expect_within(gradients[i], gradients64[i], i == 3 ? unit_of(dtype) : 1e-5,
                        what + ", gradient " + std::to_string(i));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfWidth, FusedNorm, ::testing::Values(4, 132, 768, 1024, 1280, 4096, 8192));

TEST(FusedNormOf, OtherShapesIsLibTorchs) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const auto takes = [](std::int64_t width, at::ScalarType dtype = at::kFloat) {
    const Norm norm{.weight = torch::ones({width}), .bias = torch::zeros({width})};
    return takes_add_norm(torch::ones({2, width}, dtype), {}, norm, at::kBFloat16);
  };
  EXPECT_TRUE(takes(64));
  EXPECT_FALSE(takes(63));
  EXPECT_FALSE(takes(8196));
  EXPECT_FALSE(takes(64, at::kBFloat16));
  EXPECT_FALSE(takes(64, at::kDouble));
}

TEST(FusedNormOf, WhatIsFrozenGetsNoGradientAndSecondDerivativesAreRefused) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  at::Tensor residual = drawn({3, 64}), branch = drawn({3, 64}, at::kBFloat16);
  const Norm norm{.weight = torch::ones({64}), .bias = torch::zeros({64})};
  const auto got = add_norm(residual, branch, norm, at::kBFloat16, {.sum = true});
  EXPECT_THROWS(torch::autograd::grad({got.narrow.sum()}, {residual}, {}, {}, /*create_graph=*/true),
                UsageError, "second derivatives", "fused_kernels");
  const auto by_branch =
      torch::autograd::grad({got.narrow}, {branch}, {torch::randn({3, 64}).to(at::kBFloat16)});
  EXPECT_EQ(by_branch[0].scalar_type(), at::kBFloat16);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(add_norm(residual, branch, norm, at::kBFloat16, {}).narrow.requires_grad());
}

}  // namespace
}  // namespace lockstep::kernels
