#include "kernels/split_columns.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/kept_sums.hpp"
#include "kernels/linear.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

/// The gradient of a bias whose layer's results are split, used as heads, and joined again.
TEST(SplitColumns, JoinsTheirGradientsAndSumsThem) {
  torch::manual_seed(1);
  constexpr std::int64_t kTokens = 37, kInputs = 16, kWidth = 264;
  const at::Tensor input = drawn({2, kTokens, kInputs}), weight = drawn({kWidth, kInputs}),
                   bias = drawn({kWidth});
  const std::vector<std::int64_t> widths{200, 24, 40};
  const auto loss_of = [](const Tensors& parts) {
    // Heads, whose gradients lie in another order, columns that lie apart, and none.
    const at::Tensor heads = parts[0].view({2, kTokens, 5, 40}).transpose(1, 2);
    return heads.square().sum() + (parts[2] * parts[2].sin()).sum();
  };
  const at::Tensor bias64 = exactly(bias), weight64 = exactly(weight);
  const auto parts64 = at::linear(exactly(input), weight64, bias64).split_with_sizes(widths, -1);
  const auto exact = torch::autograd::grad({loss_of(parts64)}, {weight64, bias64});

  testing::EmulatedKernels device;
  device.require_proof();
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor packed = linear(input, {weight}, {bias}, at::kBFloat16);
  ASSERT_TRUE(takes_split(packed, widths));
  const auto parts = split_columns(packed, widths);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(at::equal(parts[i], packed.split_with_sizes(widths, -1)[i]));
    EXPECT_EQ(parts[i].storage().data(), packed.storage().data());
  }
  const auto count = [&](const std::string& kernel) {
    return device.launches().contains(kernel) ? device.launches().at(kernel) : 0;
  };
  const int joins = count("join_columns<bf16>"), sums = count("column_sums<bf16>");
  const auto got = torch::autograd::grad({loss_of(parts)}, {weight, bias});
  EXPECT_EQ(count("join_columns<bf16>"), joins + 1);
  EXPECT_EQ(count("column_sums<bf16>"), sums);
  expect_within(got[0], exact[0], 0.02, "weight");
  expect_within(got[1], exact[1], 0.02, "bias");
}

TEST(SplitColumns, OfOthersAreLibTorchs) {
  testing::EmulatedKernels device;
  const at::Tensor packed = drawn({2, 3, 48}, at::kBFloat16);
  EXPECT_TRUE(takes_split(packed, {16, 16, 16}));
  EXPECT_TRUE(takes_split(packed, {16, 32}));
  EXPECT_FALSE(takes_split(packed, {20, 28}));
  EXPECT_FALSE(takes_split(packed, {16, 16}));
  EXPECT_FALSE(takes_split(packed, {8, 8, 16, 16}));
  EXPECT_FALSE(takes_split(packed.transpose(0, 1), {16, 16, 16}));
  EXPECT_FALSE(takes_split(drawn({2, 48}), {16, 32}));
  const auto parts = split_columns(packed, {16, 32});
  EXPECT_THROWS(torch::autograd::grad({parts[0].sum()}, {packed}, {}, {}, /*create_graph=*/true), UsageError,
                "second derivatives", "fused_kernels");
}

}  // namespace
}  // namespace lockstep::kernels
