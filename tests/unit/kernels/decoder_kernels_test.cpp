// The kernels of decoders on the emulator beside float64: root mean square norms, rotary positions and gates.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/gated.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

at::Tensor rms_norm64(const at::Tensor& values, const at::Tensor& weight, double offset) {
  return values * at::rsqrt(values.square().mean(-1, /*keepdim=*/true) + 1e-3) * (weight + offset);
}

MixedPrecision precision_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? MixedPrecision::fp16 : MixedPrecision::bf16;
}

struct RmsCase {
  std::int64_t width;
  at::ScalarType dtype, residual, weight;
  bool has_branch;
  double offset;

  std::string text() const {
    return "width " + std::to_string(width) + ", " + c10::toString(dtype) + ", residual " +
           c10::toString(residual) + ", weight " + c10::toString(weight) + (has_branch ? ", branch" : "") +
           ", offset " + std::to_string(offset);
  }
};

void expect_rms_norm(const RmsCase& one) {
  const std::string what = one.text();
  SCOPED_TRACE(what);
  const std::int64_t width = one.width;
  // Once more rows than twice what the 12 blocks of the backward do at a time: four each, or one.
  const bool is_long = one.has_branch && one.residual == at::kFloat && width <= 768;
  const std::int64_t rows = !is_long ? 7 : width <= 512 ? 101 : 29;
  const at::Tensor residual = drawn({1, rows, width}, one.residual), weight = drawn({width}, one.weight);
  const at::Tensor branch = one.has_branch ? drawn({1, rows, width}, one.dtype) : at::Tensor();
  const at::Tensor of_sum = torch::randn({1, rows, width}).to(one.residual),
                   of_normed = torch::randn({1, rows, width}).to(one.dtype);

  const at::Tensor residual64 = exactly(residual), weight64 = exactly(weight);
  Tensors inputs64{residual64, weight64}, inputs{residual, weight};
  at::Tensor sum64 = residual64;
  if (one.has_branch) {
    inputs64.push_back(exactly(branch));
    inputs.push_back(branch);
    sum64 = sum64 + inputs64.back();
  }
  const at::Tensor normed64 = rms_norm64(sum64, weight64, one.offset);
  at::Tensor loss64 = (normed64 * of_normed).sum();
  if (one.has_branch) loss64 = loss64 + (sum64 * of_sum).sum();
  const auto gradients64 = torch::autograd::grad({loss64}, inputs64);

  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, precision_of(one.dtype));
  const RmsNormParameters norm{.weight = weight, .epsilon = 1e-3, .offset = one.offset};
  ASSERT_TRUE(takes_rms_norm(residual, branch, norm, one.dtype));
  const AddRmsNorm got = add_rms_norm(residual, branch, norm, one.dtype);
  // A sum in 16 bits is rounded before its norm.
  const bool is_rounded = one.has_branch && one.residual == one.dtype;
  const double unit = unit_of(one.dtype), wide = is_rounded ? 3 * unit : 1e-5;
  EXPECT_EQ(got.normed.scalar_type(), one.dtype);
  expect_within(got.normed, normed64, is_rounded ? 2 * unit : unit, what);
  Tensors outputs{got.normed}, factors{of_normed};
  if (one.has_branch) {
    EXPECT_EQ(got.sum.scalar_type(), one.residual);
    expect_within(got.sum, sum64, is_rounded ? unit : 1e-6, what);
    outputs.push_back(got.sum);
    factors.push_back(of_sum);
  } else {
    EXPECT_TRUE(got.sum.is_same(residual));
  }
  const auto gradients = torch::autograd::grad(outputs, inputs, factors);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), inputs[i].scalar_type());
    const double own = inputs[i].scalar_type() == at::kFloat ? 0 : 2 * unit;
    expect_within(gradients[i], gradients64[i], std::max(own, wide),
                  what + ", gradient " + std::to_string(i));
  }
}

class RmsNormOfWidth : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(RmsNormOfWidth, IsThatOfFloat64) {
  const std::int64_t width = GetParam();
  torch::manual_seed(width);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    if (dtype == at::kHalf && width != 132) continue;
    for (const bool has_branch : {true, false}) {
      expect_rms_norm({width, dtype, at::kFloat, at::kFloat, has_branch, 1});
      // The emulator takes its time.
      if (width > 1024) continue;
      expect_rms_norm({width, dtype, dtype, at::kFloat, has_branch, 0});
      expect_rms_norm({width, dtype, dtype, dtype, has_branch, 1});
    }
  }
}

// A warp a row with 1 to 4 packs, then a block.
INSTANTIATE_TEST_SUITE_P(Of, RmsNormOfWidth, ::testing::Values(4, 132, 260, 512, 768, 2048, 8192));

TEST(RmsNormOf, OtherShapesIsLibTorchs) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const auto takes = [](std::int64_t width, at::ScalarType residual = at::kFloat,
                        at::ScalarType weight = at::kFloat) {
    return takes_rms_norm(at::ones({2, width}, residual), {}, {.weight = at::ones({width}, weight)},
                          at::kBFloat16);
  };
  EXPECT_TRUE(takes(64));
  EXPECT_TRUE(takes(64, at::kBFloat16));
  EXPECT_TRUE(takes(64, at::kFloat, at::kBFloat16));
  EXPECT_FALSE(takes(63));
  EXPECT_FALSE(takes(8196));
  EXPECT_FALSE(takes(64, at::kHalf));
  EXPECT_FALSE(takes(64, at::kDouble));
  EXPECT_FALSE(takes(64, at::kFloat, at::kHalf));
}

TEST(RmsNormOf, SecondDerivativesAreRefusedAndWhatIsFrozenHasNone) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor residual = drawn({3, 64}), branch = drawn({3, 64}, at::kBFloat16);
  const RmsNormParameters norm{.weight = torch::ones({64})};
  const auto got = add_rms_norm(residual, branch, norm, at::kBFloat16);
  EXPECT_THROWS(torch::autograd::grad({got.normed.sum()}, {residual}, {}, {}, /*create_graph=*/true),
                UsageError, "second derivatives", "fused_kernels");
  // Of the sum alone.
  const auto by_sum = torch::autograd::grad({got.sum}, {residual}, {at::ones({3, 64})});
  EXPECT_TRUE(at::equal(by_sum[0], at::ones({3, 64})));
  const at::NoGradGuard no_grad;
  const auto alone = add_rms_norm(residual, branch, norm, at::kBFloat16, /*wants_sum=*/false);
  EXPECT_FALSE(alone.sum.defined());
  EXPECT_TRUE(at::equal(alone.normed, got.normed));
}

TEST(RmsNormOf, TheLastLayerHasNoSum) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const RmsNormParameters norm{.weight = drawn({64})};
  Tensors inputs;
  const auto gradients_of = [&](bool wants_sum) {
    inputs = {drawn({5, 64}), drawn({5, 64}, at::kBFloat16), norm.weight};
    torch::manual_seed(1);
    const auto got = add_rms_norm(inputs[0], inputs[1], norm, at::kBFloat16, wants_sum);
    return torch::autograd::grad({got.normed}, inputs, {torch::randn({5, 64}).to(at::kBFloat16)});
  };
  torch::manual_seed(2);
  const auto with_sum = gradients_of(true);
  torch::manual_seed(2);
  const auto without_sum = gradients_of(false);
  for (std::size_t i = 0; i < with_sum.size(); ++i) EXPECT_TRUE(at::equal(with_sum[i], without_sum[i])) << i;
}

/// Turned as the models do it.
at::Tensor rotate64(const at::Tensor& heads, const at::Tensor& cos, const at::Tensor& sin) {
  const auto rotated = cos.size(-1);
  const at::Tensor first = heads.narrow(-1, 0, rotated);
  const auto halves = first.chunk(2, -1);
  const at::Tensor turned =
      first * cos.to(at::kDouble) + at::cat({-halves[1], halves[0]}, -1) * sin.to(at::kDouble);
  return at::cat({turned, heads.narrow(-1, rotated, heads.size(-1) - rotated)}, -1);
}

struct RopeCase {
  std::int64_t size, rotated;
  at::ScalarType dtype, rotation;
  bool has_rows;
};

void expect_rope(const RopeCase& one) {
  const std::string what = std::to_string(one.rotated) + " of " + std::to_string(one.size) + " in " +
                           c10::toString(one.dtype) + " by " + c10::toString(one.rotation);
  SCOPED_TRACE(what);
  // More than a block.
  constexpr std::int64_t kRows = 2, kTokens = 9, kQueries = 3, kKeys = 1;
  const auto angles =
      torch::randn(one.has_rows ? std::vector<std::int64_t>{kRows, 1, kTokens, one.rotated / 2}
                                : std::vector<std::int64_t>{kTokens, one.rotated / 2});
  const at::Tensor both = at::cat({angles, angles}, -1);
  const at::Tensor cos = both.cos().to(one.rotation), sin = both.sin().to(one.rotation);
  // As one product gives queries, keys and values, side by side.
  const at::Tensor all = drawn({kRows, kTokens, (kQueries + 2 * kKeys) * one.size}, one.dtype);
  const auto heads_of = [&](const at::Tensor& values) {
    const auto parts = values.split_with_sizes({kQueries * one.size, kKeys * one.size, kKeys * one.size}, -1);
    const auto split = [&](const at::Tensor& part, std::int64_t heads) {
      return part.view({kRows, kTokens, heads, one.size}).transpose(1, 2);
    };
    return Tensors{split(parts[0], kQueries), split(parts[1], kKeys)};
  };
  const at::Tensor of_query = torch::randn({kRows, kQueries, kTokens, one.size}).to(one.dtype),
                   of_key = torch::randn({kRows, kKeys, kTokens, one.size}).to(one.dtype);
  const at::Tensor all64 = exactly(all);
  const Tensors heads64 = heads_of(all64);
  const at::Tensor query64 = rotate64(heads64[0], cos, sin), key64 = rotate64(heads64[1], cos, sin);
  const auto by64 = torch::autograd::grad({(query64 * of_query).sum() + (key64 * of_key).sum()}, {all64})[0];

  testing::EmulatedKernels device;
  const Tensors heads = heads_of(all);
  const RopeTask task{.query = heads[0], .key = heads[1], .cos = cos, .sin = sin};
  ASSERT_TRUE(takes_rope(task));
  const TurnedHeads turned = rope(task);
  expect_within(turned.query, query64, unit_of(one.dtype), what);
  expect_within(turned.key, key64, unit_of(one.dtype), what);
  EXPECT_TRUE(turned.query.transpose(1, 2).is_contiguous());
  const auto by = torch::autograd::grad({turned.query, turned.key}, {all}, {of_query, of_key})[0];
  expect_within(by, by64, unit_of(one.dtype), what);
  // Of one alone.
  const Tensors again = heads_of(all);
  const auto keys = rope({.query = again[0], .key = again[1], .cos = cos, .sin = sin}).key;
  const auto by_keys = torch::autograd::grad({keys}, {all}, {of_key})[0];
  EXPECT_TRUE(at::equal(by_keys.narrow(-1, kQueries * one.size, kKeys * one.size),
                        by.narrow(-1, kQueries * one.size, kKeys * one.size)));
  EXPECT_FALSE(by_keys.narrow(-1, 0, kQueries * one.size).any().item<bool>());
}

TEST(RotaryPositions, AreThoseOfFloat64) {
  torch::manual_seed(5);
  for (const bool has_rows : {false, true}) {
    expect_rope({64, 64, at::kBFloat16, at::kFloat, has_rows});
    expect_rope({64, 64, at::kBFloat16, at::kBFloat16, has_rows});
    expect_rope({80, 32, at::kHalf, at::kHalf, has_rows});
    expect_rope({40, 16, at::kHalf, at::kFloat, has_rows});
  }
}

TEST(RotaryPositions, RefuseSecondDerivatives) {
  testing::EmulatedKernels device;
  const at::Tensor heads = drawn({1, 2, 3, 16}, at::kBFloat16), table = at::ones({3, 16});
  const auto turned = rope({.query = heads, .key = heads, .cos = table, .sin = table});
  EXPECT_THROWS(torch::autograd::grad({turned.query.sum()}, {heads}, {}, {}, /*create_graph=*/true),
                UsageError, "rotary positions", "second derivatives", "fused_kernels");
}

TEST(RotaryPositions, OfOtherSizesAreLibTorchs) {
  testing::EmulatedKernels device;
  const auto takes = [](std::int64_t size, std::int64_t rotated, at::ScalarType key = at::kBFloat16) {
    const at::Tensor table = at::ones({3, rotated});
    return takes_rope({.query = at::ones({1, 2, 3, size}, at::kBFloat16),
                       .key = at::ones({1, 1, 3, size}, key),
                       .cos = table,
                       .sin = table});
  };
  EXPECT_TRUE(takes(32, 32));
  EXPECT_FALSE(takes(32, 24));
  EXPECT_FALSE(takes(36, 32));
  EXPECT_FALSE(takes(32, 32, at::kFloat));
}

/// Of more than two blocks, the last of which is not full.
void expect_gate(Gate activation, at::ScalarType dtype, bool is_packed) {
  SCOPED_TRACE(static_cast<int>(activation));
  const at::Tensor both = (torch::randn({2, 90, 48}) * 3).to(dtype).requires_grad_(),
                   factor = torch::randn({2, 90, 24}).to(dtype);
  const at::Tensor both64 = exactly(both);
  const auto parts64 = both64.chunk(2, -1);
  const at::Tensor active = activation == Gate::silu
                                ? at::silu(parts64[0])
                                : at::gelu(parts64[0], activation == Gate::gelu ? "none" : "tanh");
  const at::Tensor result64 = active * parts64[1];
  const auto by64 = torch::autograd::grad({result64}, {both64}, {factor.to(at::kDouble)})[0];
  testing::EmulatedKernels device;
  const auto parts = both.chunk(2, -1);
  const at::Tensor gate = is_packed ? both : parts[0], up = is_packed ? at::Tensor() : parts[1];
  ASSERT_TRUE(takes_gate(gate, up, activation));
  const at::Tensor result = activate_gate(gate, up, activation);
  expect_within(result, result64, unit_of(dtype), "result");
  const auto by = torch::autograd::grad({result}, {both}, {factor})[0];
  expect_within(by, by64, unit_of(dtype), "gradient");
}

TEST(Gates, AreThoseOfFloat64) {
  torch::manual_seed(6);
  for (const auto activation : {Gate::silu, Gate::gelu, Gate::gelu_tanh}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const bool is_packed : {false, true}) expect_gate(activation, dtype, is_packed);
    }
  }
}

/// Where the exponential overflows.
TEST(Gates, OfGreatNumbersAreFinite) {
  testing::EmulatedKernels device;
  const at::Tensor gate = at::tensor({-1e4, -100.0, -60.0, 0.0, 60.0, 100.0, 1e4, 1.0}).to(at::kBFloat16),
                   up = at::ones({8}, at::kBFloat16);
  const at::Tensor given = gate.clone().requires_grad_();
  for (const auto activation : {Gate::silu, Gate::gelu, Gate::gelu_tanh}) {
    const at::Tensor result = activate_gate(given, up, activation);
    EXPECT_TRUE(result.isfinite().all().item<bool>()) << result;
    const auto by = torch::autograd::grad({result.sum()}, {given})[0];
    EXPECT_TRUE(by.isfinite().all().item<bool>()) << by;
    EXPECT_EQ(by[0].item<double>(), 0);
    EXPECT_EQ(by[6].item<double>(), 1);
  }
}

TEST(Gates, RefuseSecondDerivatives) {
  testing::EmulatedKernels device;
  const at::Tensor gate = drawn({2, 16}, at::kBFloat16);
  EXPECT_THROWS(torch::autograd::grad({activate_gate(gate, {}, Gate::silu).sum()}, {gate}, {}, {},
                                      /*create_graph=*/true),
                UsageError, "gated layer", "second derivatives", "fused_kernels");
}

TEST(Gates, OfOtherWidthsAreLibTorchs) {
  testing::EmulatedKernels device;
  const auto takes = [](std::int64_t width, bool is_packed) {
    const at::Tensor values = at::ones({2, width}, at::kBFloat16);
    return takes_gate(values, is_packed ? at::Tensor() : values, Gate::silu);
  };
  EXPECT_TRUE(takes(24, false));
  EXPECT_TRUE(takes(48, true));
  EXPECT_FALSE(takes(20, false));
  EXPECT_FALSE(takes(24, true));
}

}  // namespace
}  // namespace lockstep::kernels
