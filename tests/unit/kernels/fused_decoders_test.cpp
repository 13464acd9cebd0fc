// Whole decoders with fused kernels, on the emulator, beside the same decoders with LibTorch's operations.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "lockstep/models/decoder.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "models/residual.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::models {
namespace {

DecoderConfig small_decoder(const std::string& family) {
  auto config = DecoderConfig::of(family);
  config.vocab_size = 101;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 16;
  config.padding_idx = {};
  config.layers.resize(3);
  // So that the branches are as large as the states, and a wrong one is seen.
  config.initializer_range = 0.2;
  return config;
}

/// The loss and then the gradients of a step in bfloat16.
std::vector<at::Tensor> step_of(DecoderForCausalLM& model) {
  const at::Tensor tokens = at::arange(32, at::kLong).mul(7).remainder(101).view({2, 16});
  model->zero_grad();
  const at::Tensor loss = in_precision(at::kCPU, MixedPrecision::bf16,
                                       [&] { return model->token_losses(tokens, {}, tokens).loss_sum; });
  loss.backward();
  std::vector<at::Tensor> found{loss.detach().to(at::kFloat)};
  for (const auto& parameter : model->parameters()) found.push_back(parameter.grad().to(at::kFloat).clone());
  return found;
}

int launches_beginning_with(const testing::EmulatedKernels& device, const std::string& beginning) {
  int count = 0;
  for (const auto& [name, times] : device.launches()) count += name.starts_with(beginning) ? times : 0;
  return count;
}

void checkpoint_blocks(DecoderForCausalLM& model, bool on) {
  for (const auto& module : model->modules()) {
    if (auto* const unit = dynamic_cast<Unit*>(module.get())) unit->set_activation_checkpointing(on);
  }
}

class FusedDecoders : public ::testing::TestWithParam<std::string> {};

/// Rounding in bfloat16 moves gradients by some parts in a hundred; a swapped gate or a wrong rotation moves
/// them by their own size.
TEST_P(FusedDecoders, TrainAsTheComposition) {
  at::manual_seed(3);
  DecoderForCausalLM model(small_decoder(GetParam()));
  const auto composed = step_of(model);
  const testing::EmulatedKernels device;
  const auto fused = step_of(model);
  for (const char* kernel : {"rms_norm", "rope", "gated", "join_columns"})
    EXPECT_GT(launches_beginning_with(device, kernel), 0) << kernel;
  ASSERT_EQ(fused.size(), composed.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const auto difference = (fused[i] - composed[i]).norm().item<double>();
    EXPECT_LT(difference, 0.08 * composed[i].norm().item<double>()) << i;
  }
  checkpoint_blocks(model, true);
  const auto recomputed = step_of(model);
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const auto difference = (recomputed[i] - fused[i]).norm().item<double>();
    EXPECT_LT(difference, 0.03 * fused[i].norm().item<double>()) << i << " with checkpointing";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FusedDecoders,
                         ::testing::Values("llama", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3",
                                           "olmo2"));

struct Block : Unit {};

/// A checkpoint keeps what a block gets.
TEST(ResidualOfABlock, IsOneTensorUnderCheckpointing) {
  Block block;
  const Residual both{at::full({2, 4}, 1.0F), at::full({2, 4}, 2.0F)};
  EXPECT_EQ(input_of(block, both).size(), 2U);
  block.set_activation_checkpointing(true);
  const auto whole = input_of(block, both);
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_TRUE(whole[0].equal(at::full({2, 4}, 3.0F)));
}

}  // namespace
}  // namespace lockstep::models
