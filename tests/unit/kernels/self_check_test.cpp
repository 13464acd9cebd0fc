// Fused operations that prove themselves, right ones and broken ones, on the emulator.

#include "kernels/self_check.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/add_norm.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gated.hpp"
#include "kernels/linear.hpp"
#include "kernels/loss_factor.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/scaled_copies.hpp"
#include "kernels/split_columns.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::kernels {
namespace {

bool takes_norm() {
  const Norm norm{.weight = at::ones({64}), .bias = at::zeros({64})};
  return takes_add_norm(at::ones({2, 64}), at::ones({2, 64}, at::kBFloat16), norm, at::kBFloat16);
}

bool takes_loss() {
  const CrossEntropyTask task{.labels = at::zeros({2}, at::kLong), .words = 60};
  return takes_cross_entropy(at::ones({2, 64}, at::kBFloat16), task);
}

bool takes_rms() {
  return takes_rms_norm(at::ones({2, 64}), at::ones({2, 64}, at::kBFloat16), {.weight = at::ones({64})},
                        at::kBFloat16);
}

bool takes_turns() {
  const at::Tensor heads = at::ones({1, 2, 3, 16}, at::kBFloat16), table = at::ones({3, 16});
  return takes_rope({.query = heads, .key = heads, .cos = table, .sin = table});
}

bool takes_gates() {
  const at::Tensor values = at::ones({2, 16}, at::kBFloat16);
  return takes_gate(values, values, Gate::silu);
}

bool takes_parts() { return takes_split(at::ones({2, 48}, at::kBFloat16), {16, 16, 16}); }

bool takes_words() {
  return takes_embedding({at::zeros({2, 3}, at::kLong)},
                         {.words = at::ones({4, 8}), .places = at::ones({5, 8})});
}

bool takes_factors() {
  return takes_loss_factor({.states = at::ones({4}, at::kBFloat16), .weight = at::ones({4})}, at::ones({}));
}

bool takes_copies() { return takes_scaled_copies({at::ones({4})}, {at::ones({4}, at::kBFloat16)}); }

/// Whether the layer's bias has its gradient summed by our kernel.
bool uses_linear(const testing::EmulatedKernels& device, Activation activation) {
  const at::Tensor input = at::ones({40, 8}), weight = at::ones({16, 8}).requires_grad_(),
                   bias = at::zeros({16}).requires_grad_();
  const std::string kernel = activation == Activation::none   ? "column_sums<bf16>"
                             : activation == Activation::gelu ? "gelu_backward<bf16, false>"
                                                              : "gelu_backward<bf16, true>";
  const auto count = [&] { return device.launches().contains(kernel) ? device.launches().at(kernel) : 0; };
  // The check comes with the first.
  linear(input, {weight}, {bias}, at::kBFloat16, {.activation = activation});
  const int before = count();
  const at::Tensor result = linear(input, {weight}, {bias}, at::kBFloat16, {.activation = activation});
  result.to(at::kFloat).sum().backward();
  EXPECT_NEAR(weight.grad()[0][0].item<double>(), bias.grad()[0].item<double>(), 1e-3);
  return count() > before;
}

TEST(SelfCheck, RightKernelsAreUsed) {
  testing::EmulatedKernels device;
  device.require_proof();
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(takes_norm());
  EXPECT_TRUE(takes_loss());
  EXPECT_TRUE(takes_rms());
  EXPECT_TRUE(takes_turns());
  EXPECT_TRUE(takes_gates());
  EXPECT_TRUE(takes_parts());
  EXPECT_TRUE(takes_words());
  EXPECT_TRUE(takes_factors());
  EXPECT_TRUE(takes_copies());
  for (const auto activation : {Activation::none, Activation::gelu, Activation::gelu_tanh})
    EXPECT_TRUE(uses_linear(device, activation));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

struct Broken {
  const char* kernel;
  const char* operation;
};

TEST(SelfCheck, OfABrokenKernelWarnsOnceAndLeavesTheOperationToLibTorch) {
  for (const auto& [kernel, operation] :
       {Broken{"add_norm<bf16, 1>", "layer normalization of 64 in bf16"},
        Broken{"add_norm_backward<bf16, 1, false>", "layer normalization of 64 in bf16"},
        Broken{"add_norm_backward<bf16, 1, true>", "layer normalization of 64 in bf16"},
        Broken{"cross_entropy<bf16, true>", "cross entropy in bf16"},
        Broken{"cross_entropy<bf16, false>", "cross entropy in bf16"},
        Broken{"rms_norm<float, bf16, 1>",
               "root mean square normalization of 64 float to bf16 with weights in float"},
        Broken{"rms_norm_backward<float, bf16, 1>",
               "root mean square normalization of 64 float to bf16 with weights in float"},
        Broken{"rope<bf16, float>", "rotary positions in bf16 by float"},
        Broken{"gated<bf16, 0>", "gates of SiLU in bf16"},
        Broken{"gated_backward<bf16, 0>", "gates of SiLU in bf16"},
        Broken{"join_columns<bf16>", "columns of one product in bf16"},
        Broken{"embed_tokens<float>", "embeddings"},
        Broken{"word_gradients<float>", "embeddings"},
        Broken{"type_gradients<float>", "embeddings"},
        Broken{"place_gradients<float>", "embeddings"},
        Broken{"multiply_gradients<bf16, float>", "gradients of losses with weights in float"},
        Broken{"scaled_copies<float, bf16>", "copies of gradients from float to bf16"},
        Broken{"gelu_forward<bf16, false>", "linear layers in bf16, with GELU"},
        Broken{"gelu_backward<bf16, false>", "linear layers in bf16, with GELU"},
        Broken{"column_totals", "linear layers in bf16, with GELU"}}) {
    SCOPED_TRACE(kernel);
    testing::EmulatedKernels device;
    device.require_proof();
    device.break_kernel(kernel);
    const Autocast cast(at::kCPU, MixedPrecision::bf16);
    const std::string name = operation;
    const auto takes = [&] {
      if (name.starts_with("layer")) return takes_norm();
      if (name.starts_with("root")) return takes_rms();
      if (name.starts_with("rotary")) return takes_turns();
      if (name.starts_with("gates")) return takes_gates();
      if (name.starts_with("columns")) return takes_parts();
      if (name.starts_with("copies")) return takes_copies();
      if (name.starts_with("embeddings")) return takes_words();
      if (name.starts_with("gradients of losses")) return takes_factors();
      if (name.starts_with("cross")) return takes_loss();
      return uses_linear(device, Activation::gelu);
    };
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(takes());
    EXPECT_FALSE(takes());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("the fused kernels of " + name + " are not used, because on cpu"), std::string::npos)
        << said;
    EXPECT_EQ(said.find("warning"), said.rfind("warning")) << said;
  }
}

/// A check counts no saved tensors of the checkpoint in which it happens.
TEST(SelfCheck, InsideACheckpointIsNoPartOfIt) {
  testing::EmulatedKernels device;
  device.require_proof();
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor weight = waves({16, 8}, at::kFloat, at::kCPU, 1),
                   bias = waves({16}, at::kFloat, at::kCPU, 2);
  const at::Tensor input = waves({16, 8}, at::kFloat, at::kCPU, 3);
  const auto layer = [=](const at::Tensor& states) {
    return linear(states, {weight}, {bias}, at::kBFloat16, {.activation = Activation::gelu});
  };
  checkpoint(layer, input).to(at::kFloat).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_GT(device.launches().at("gelu_backward<bf16, false>"), 1);
}

TEST(SelfCheck, AComparisonTellsWhatIsApart) {
  const auto twice = [](const Tensors& given) { return Tensors{given[0] * 2}; };
  const auto thrice = [](const Tensors& given) { return Tensors{given[0] * 3}; };
  const Tensors inputs{waves({7}, at::kFloat, at::kCPU, 1)};
  EXPECT_NO_THROW(compare({.inputs = inputs, .fused = twice, .reference = twice}));
  EXPECT_THROW(compare({.inputs = inputs, .fused = twice, .reference = thrice}), Error);
  const auto none = [](const Tensors& given) { return Tensors{given[0] * NAN}; };
  EXPECT_THROW(compare({.inputs = inputs, .fused = none, .reference = twice}), Error);
}

}  // namespace
}  // namespace lockstep::kernels
