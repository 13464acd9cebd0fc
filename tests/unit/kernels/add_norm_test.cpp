#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "kernels/add_norm.hpp"
#include "kernels/kept_sums.hpp"
#include "kernels/linear.hpp"
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
        // Once more rows than twice the blocks of the backward, which are 12.
        const bool is_long =
            (width == 132 || width == 1280) && dtype == at::kBFloat16 && has_branch && wants.sum;
        const std::int64_t rows = is_long ? 29 : 3;
        const std::string what = "width " + std::to_string(width) + ", " + c10::toString(dtype) +
                                 (has_branch ? ", branch" : "") + (wants.sum ? ", sum" : "") +
                                 (wants.wide ? ", wide" : "");
        const at::Tensor residual = drawn({1, rows, width}), weight = drawn({width}), bias = drawn({width});
        const at::Tensor branch = has_branch ? drawn({1, rows, width}, dtype) : at::Tensor();
        const at::Tensor of_sum = torch::randn({1, rows, width}), of_wide = torch::randn({1, rows, width});
        const at::Tensor of_narrow = torch::randn({1, rows, width}).to(dtype);

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
  const auto by_branch = torch::autograd::grad(
      {got.narrow}, {branch}, {torch::randn({3, 64}).to(at::kBFloat16)}, /*retain_graph=*/true);
  EXPECT_EQ(by_branch[0].scalar_type(), at::kBFloat16);
  // Of the sum alone.
  const auto by_sum = torch::autograd::grad({got.sum}, {residual}, {at::ones({3, 64})});
  EXPECT_TRUE(at::equal(by_sum[0], at::ones({3, 64})));
  const at::NoGradGuard no_grad;
  const at::Tensor alone = add_norm(residual, branch, norm, at::kBFloat16, {}).narrow;
  EXPECT_FALSE(alone.requires_grad());
  EXPECT_TRUE(at::equal(alone, got.narrow));
}

/// A linear layer whose results are a branch, and perhaps go elsewhere as well.
struct BranchOfALayer {
  at::Tensor input = drawn({5, 8}), weight = drawn({64, 8}), bias = drawn({64});
  at::Tensor residual = drawn({5, 64});
  Norm norm{.weight = drawn({64}), .bias = drawn({64})};
  at::Tensor factor = torch::randn({5, 64});

  void expect_gradient_of_bias(testing::EmulatedKernels& device, bool goes_elsewhere, int sums) {
    const Autocast cast(at::kCPU, MixedPrecision::bf16);
    const auto run = [&] {
      const at::Tensor branch = linear(input, {weight}, {bias}, at::kBFloat16);
      EXPECT_TRUE(sums_its_gradient(branch));
      const auto got = add_norm(residual, branch, norm, at::kBFloat16, {.wide = true});
      at::Tensor loss = (got.wide * factor).sum();
      if (goes_elsewhere) loss = loss + branch.to(at::kFloat).square().sum();
      return torch::autograd::grad({loss}, {bias})[0];
    };
    const at::Tensor by_bias = run();
    const auto& launches = device.launches();
    EXPECT_EQ(launches.contains("column_sums<bf16>") ? launches.at("column_sums<bf16>") : 0, sums);
    const at::Tensor bias64 = exactly(bias);
    const at::Tensor branch64 = at::linear(exactly(input), exactly(weight), bias64);
    at::Tensor loss64 = (at::layer_norm(exactly(residual) + branch64, {64}, exactly(norm.weight),
                                        exactly(norm.bias), norm.epsilon) *
                         factor)
                            .sum();
    if (goes_elsewhere) loss64 = loss64 + branch64.square().sum();
    expect_within(by_bias, torch::autograd::grad({loss64}, {bias64})[0], 0.02, "gradient of the bias");
  }
};

TEST(FusedNormOf, ALayersBranchSumsTheGradientOfItsBias) {
  torch::manual_seed(3);
  testing::EmulatedKernels device;
  BranchOfALayer().expect_gradient_of_bias(device, /*goes_elsewhere=*/false, 0);
  BranchOfALayer().expect_gradient_of_bias(device, /*goes_elsewhere=*/true, 1);
}

TEST(KeptSums, AreThoseOfAnUnchangedGradient) {
  const at::Tensor sums = at::ones({3});
  at::Tensor gradient = at::ones({2, 3});
  keep_column_sums(gradient, sums);
  EXPECT_FALSE(take_column_sums(at::ones({2, 3})).defined());
  EXPECT_TRUE(take_column_sums(gradient).is_same(sums));
  EXPECT_FALSE(take_column_sums(gradient).defined());
  keep_column_sums(gradient, sums);
  gradient.mul_(2);
  EXPECT_FALSE(take_column_sums(gradient).defined());
  keep_column_sums(gradient, sums);
  const auto count = sums.use_count();
  gradient = at::Tensor();
  keep_column_sums(at::ones({1}), at::ones({1}));
  EXPECT_LT(sums.use_count(), count);
}

}  // namespace
}  // namespace lockstep::kernels
