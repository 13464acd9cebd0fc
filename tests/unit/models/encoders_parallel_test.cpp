// Encoders of each family on several ranks: the bits of one.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/models/encoder.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/models/parallel_bits.hpp"

namespace lockstep::models {
namespace {

EncoderConfig tiny_encoder(const std::string& model_type) {
  EncoderConfig config = EncoderConfig::of(model_type);
  config.vocab_size = 37;
  config.hidden_size = 12;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.intermediate_size = 20;
  config.max_position_embeddings = 16;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  if (config.embedding_size > 0) config.embedding_size = 8;
  if (config.pad_token_id >= config.vocab_size) config.pad_token_id = 0;
  config.modern.local_attention = 4;
  return config;
}

/// With "-untied" behind the family, the head has weights of its own.
TokenLossModel masked_model(const std::string& model) {
  const auto dash = model.find("-untied");
  EncoderConfig config = tiny_encoder(model.substr(0, dash));
  config.tie_word_embeddings = dash == std::string::npos;
  EncoderForMaskedLM masked(config);
  fill(*masked);
  return TokenLossModel(MaskedLM(std::static_pointer_cast<MaskedLMImpl>(masked.ptr())));
}

/// In parts of three tokens.
const auto masked_loss = [](auto& model, int rank, int step) {
  const at::Tensor tokens = at::arange(16).mul(rank + 3).add(step).remainder(35).add(2).view({2, 8});
  const auto losses = model(LabelledTexts{.input_ids = tokens,
                                          .labels = tokens.masked_fill(at::arange(16).view({2, 8}) < 5, -100),
                                          .options = {.logits_at_a_time = 37 * 3}});
  return losses.loss_sum / losses.loss_weight;
};

class EncoderInParallel : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> masked_models() {
  auto models = EncoderConfig::model_types();
  models.emplace_back("bert-untied");
  return models;
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderInParallel, ::testing::ValuesIn(masked_models()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(EncoderInParallel, DdpFsdpAndOneRankTrainTheSameBits) {
  expect_parallel_bits([] { return masked_model(GetParam()); }, masked_loss);
}

}  // namespace
}  // namespace lockstep::models
