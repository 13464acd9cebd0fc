// How many kernels a training step starts with fused kernels: see kernel_budget_test.cpp for LibTorch's.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/weight_copies.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/models/kernel_count.hpp"

namespace lockstep::models {
namespace {

/// What a GPU starts where the CPU does something else. The copies of all weights are one call, which is a
/// kernel for 110 tensors of 320 pieces of 65,536 elements: 2 for the weights of these models, 7 for those of
/// GPT-2 124M. A product adds its bias and writes float32 itself. Flash attention's backward is three
/// kernels: the products of gradients and results, the gradients, and their rounding. The gradient of an
/// embedding is the zeros and a kernel, up to 3,072 tokens; of more tokens, LibTorch sorts them by a dozen.
const KernelsOnGpu kOnGpu = {{"_foreach_copy_", 2},
                             {"addmm", 1},
                             {"lockstep::mm_in_another_dtype", 1},
                             {"_scaled_dot_product_flash_attention_for_cpu", 1},
                             {"_scaled_dot_product_flash_attention_for_cpu_backward", 3},
                             {"embedding_dense_backward", 2}};

/// As on a GPU, where the copies of weights are kept.
class FusedKernelBudget : public ::testing::Test {
 protected:
  void SetUp() override { kernels::keep_copies_on_cpu(true); }
  void TearDown() override { kernels::keep_copies_on_cpu(false); }
};

at::Tensor some_tokens() { return at::arange(32, at::kLong).mul(7).remainder(101).view({2, 16}); }

TEST_F(FusedKernelBudget, OfAStepOfGpt2) {
  const Gpt2LMHeadModel model(Gpt2Config{.vocab_size = 101,
                                         .n_positions = 16,
                                         .n_embd = 32,
                                         .n_layer = 12,
                                         .n_head = 2,
                                         .resid_pdrop = 0,
                                         .embd_pdrop = 0,
                                         .attn_pdrop = 0});
  const testing::EmulatedKernels device;
  const at::Tensor tokens = some_tokens();
  expect_kernels(
      kernels_of_step(
          model, [&](auto& gpt2) { return gpt2->token_losses(tokens, {}, tokens).loss_sum; }, kOnGpu),
      300);
}

TEST_F(FusedKernelBudget, OfAStepOfBert) {
  const BertForSequenceClassification model(BertConfig{.vocab_size = 101,
                                                       .hidden_size = 32,
                                                       .num_hidden_layers = 12,
                                                       .num_attention_heads = 2,
                                                       .intermediate_size = 64,
                                                       .hidden_dropout_prob = 0,
                                                       .attention_probs_dropout_prob = 0,
                                                       .max_position_embeddings = 16});
  const testing::EmulatedKernels device;
  const at::Tensor tokens = some_tokens();
  expect_kernels(kernels_of_step(
                     model, [&](auto& bert) { return bert(tokens).square().sum(); }, kOnGpu),
                 330);
}

TEST_F(FusedKernelBudget, OfAStepOfLlama) {
  DecoderConfig config;
  config.vocab_size = 101;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 16;
  config.layers.resize(12);
  const DecoderForCausalLM model(config);
  const testing::EmulatedKernels device;
  const at::Tensor tokens = some_tokens();
  expect_kernels(
      kernels_of_step(
          model, [&](auto& llama) { return llama->token_losses(tokens, {}, tokens).loss_sum; }, kOnGpu),
      350);
}

}  // namespace
}  // namespace lockstep::models
