// token_losses() by its kernel, on the emulator.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "lockstep/kernels/fused_kernels.hpp"
#include "lockstep/models/token_losses.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::models {
namespace {

constexpr std::int64_t kVocabulary = 83, kStates = 8;

struct FusedLossCase {
  at::Tensor weight, states, labels;

  explicit FusedLossCase(at::ScalarType dtype) {
    torch::manual_seed(3);
    // Values that 16 bits have, so that the rounding of inputs makes no difference.
    weight = torch::randn({kVocabulary, kStates}).to(at::kBFloat16).to(dtype).requires_grad_();
    states = torch::randn({2, 9, kStates}).to(at::kBFloat16).to(dtype).requires_grad_();
    labels = torch::arange(18).mul(5).remainder(kVocabulary).view({2, 9});
    labels[0][4] = labels[1][0] = labels[1][8] = kNoLabel;
  }

  /// Loss, gradients, predictions.
  std::vector<at::Tensor> run(TokenLossOptions options, double factor, bool in_checkpoint = false) const {
    options.predictions = true;
    const auto losses = [&](const at::Tensor& some) {
      const auto result = token_losses({.weight = weight}, some, labels, options);
      return std::vector{result.loss_sum, result.predictions};
    };
    const auto both = in_checkpoint ? checkpoint(losses, states) : losses(states);
    auto all = torch::autograd::grad({both[0] * factor}, {states, weight});
    all.insert(all.begin(), {both[0].detach(), both[1]});
    return all;
  }
};

void expect_near(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& exact, double tolerance) {
  EXPECT_NEAR(got[0].item<double>(), exact[0].item<double>(), tolerance * exact[0].item<double>());
  EXPECT_GT(got[1].eq(exact[1]).to(at::kFloat).mean().item<double>(), 0.9);
  for (const std::size_t i : {2, 3}) {
    EXPECT_EQ(got[i].sizes(), exact[i].sizes());
    EXPECT_EQ(got[i].scalar_type(), at::kFloat);
    const double scale = exact[i].abs().max().item<double>();
    EXPECT_LE((got[i] - exact[i]).abs().max().item<double>(), tolerance * scale) << i;
  }
}

int launches_of(const testing::EmulatedKernels& device, const std::string& instance) {
  const auto found = device.launches().find(instance);
  return found == device.launches().end() ? 0 : found->second;
}

TEST(FusedTokenLosses, AreThoseOfFloat64) {
  for (const double smoothing : {0.0, 0.2}) {
    for (const std::int64_t size : {std::int64_t{0}, 5 * kVocabulary}) {
      const TokenLossOptions options{.label_smoothing = smoothing, .logits_at_a_time = size};
      const auto exact = FusedLossCase(at::kDouble).run(options, 0.3);
      testing::EmulatedKernels device;
      const Autocast cast(at::kCPU, MixedPrecision::bf16);
      const FusedLossCase one(at::kFloat);
      expect_near(one.run(options, 0.3), exact, 0.02);
      EXPECT_EQ(launches_of(device, "cross_entropy<bf16, true>"), size == 0 ? 1 : 4);
      EXPECT_EQ(launches_of(device, "cross_entropy<bf16, false>"), 0);
    }
  }
}

/// float16 whose factor comes with backward, and inside of a checkpoint.
TEST(FusedTokenLosses, WaitForTheScaleOfTheLoss) {
  for (const auto precision : {MixedPrecision::fp16, MixedPrecision::bf16}) {
    for (const std::int64_t size : {std::int64_t{0}, 5 * kVocabulary}) {
      const bool in_checkpoint = precision == MixedPrecision::bf16;
      const TokenLossOptions options{.logits_at_a_time = size};
      const auto exact = FusedLossCase(at::kDouble).run(options, 1024);
      testing::EmulatedKernels device;
      const Autocast cast(at::kCPU, precision);
      const FusedLossCase one(at::kFloat);
      expect_near(one.run(options, 1024, in_checkpoint), exact, 0.02);
      const std::string type = in_checkpoint ? "bf16" : "fp16";
      EXPECT_GT(launches_of(device, "cross_entropy<" + type + ", true>"), 0);
    }
  }
}

TEST(FusedTokenLosses, OfARetainedGraphAreTheSameTwice) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::fp16);
  const FusedLossCase one(at::kFloat);
  const auto losses = token_losses({.weight = one.weight}, one.states, one.labels);
  const auto first = torch::autograd::grad({losses.loss_sum}, {one.states, one.weight}, {}, true);
  const auto second = torch::autograd::grad({losses.loss_sum}, {one.states, one.weight});
  EXPECT_TRUE(at::equal(first[0], second[0]));
  EXPECT_TRUE(at::equal(first[1], second[1]));
}

TEST(FusedTokenLosses, AreNotUsedForOtherHeads) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const FusedLossCase one(at::kFloat);
  token_losses({.weight = one.weight, .softcap = 3}, one.states, one.labels);
  token_losses({.weight = one.weight, .divisor = 3}, one.states, one.labels);
  token_losses({.weight = one.weight}, one.states, one.labels, {.logits = true});
  token_losses({.weight = one.weight}, one.states.narrow(1, 0, 0), one.labels.narrow(1, 0, 0));
  set_fused_kernels(FusedKernels::off);
  token_losses({.weight = one.weight}, one.states, one.labels);
  set_fused_kernels(FusedKernels::automatic);
  EXPECT_TRUE(device.launches().empty());
  const at::NoGradGuard no_grad;
  const auto losses = token_losses({.weight = one.weight}, one.states, one.labels);
  EXPECT_FALSE(losses.loss_sum.requires_grad());
  EXPECT_EQ(launches_of(device, "cross_entropy<bf16, false>"), 1);
}

}  // namespace
}  // namespace lockstep::models
