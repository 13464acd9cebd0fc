// How many kernels a training step starts: on a GPU each costs the host time, whatever the size of the model.

#include "unit/models/kernel_count.hpp"

#include <gtest/gtest.h>

#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

TEST(KernelBudget, OfAStepOfGpt2) {
  const Gpt2LMHeadModel model(Gpt2Config{.vocab_size = 101,
                                         .n_positions = 16,
                                         .n_embd = 24,
                                         .n_layer = 12,
                                         .n_head = 2,
                                         .resid_pdrop = 0,
                                         .embd_pdrop = 0,
                                         .attn_pdrop = 0});
  const at::Tensor tokens = ids(2, 16, 101);
  expect_kernels(
      kernels_of_step(model, [&](auto& gpt2) { return gpt2->token_losses(tokens, {}, tokens).loss_sum; }),
      667);
}

TEST(KernelBudget, OfAStepOfBert) {
  const BertForSequenceClassification model(BertConfig{.vocab_size = 101,
                                                       .hidden_size = 24,
                                                       .num_hidden_layers = 12,
                                                       .num_attention_heads = 2,
                                                       .intermediate_size = 48,
                                                       .hidden_dropout_prob = 0,
                                                       .attention_probs_dropout_prob = 0,
                                                       .max_position_embeddings = 16});
  const at::Tensor tokens = ids(2, 16, 101);
  expect_kernels(kernels_of_step(model, [&](auto& bert) { return bert(tokens).square().sum(); }), 1005);
}

}  // namespace
}  // namespace lockstep::models
