// Encoders of each family on several ranks: the bits of one.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/models/encoder.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

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

template <class Wrapped>
std::vector<at::Tensor> trained_values(Wrapped& wrapped, TokenLossModel model, const auto& whole,
                                       const std::function<int()>& data) {
  testing::losses_of(
      wrapped, model->parameters(), [&](auto& net, int step) { return masked_loss(net, data(), step); }, 2);
  [[maybe_unused]] const auto parameters = whole();
  std::vector<at::Tensor> values;
  for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

std::vector<at::Tensor> values_of_ddp(const ProcessGroup& group, const std::string& type, bool same_data) {
  auto model = masked_model(type);
  DistributedDataParallel<TokenLossModel> wrapped(model, group);
  return trained_values(
      wrapped, model, [] { return 0; }, [&] { return same_data ? 0 : group.rank(); });
}

std::vector<at::Tensor> values_of_fsdp(const ProcessGroup& group, const std::string& type, bool same_data) {
  auto model = masked_model(type);
  auto wrapped = fully_shard(model, group);
  return trained_values(
      wrapped, model, [&] { return wrapped.full_parameters(); },
      [&] { return same_data ? 0 : group.rank(); });
}

void expect_same_values(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(at::equal(some[i], others[i])) << i;
}

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
  const auto& type = GetParam();
  std::vector<at::Tensor> alone;
  testing::run_group(1, [&](const ProcessGroup& group) { alone = values_of_ddp(group, type, true); });
  const auto untrained = masked_model(type)->parameters();
  EXPECT_FALSE(at::equal(alone.front(), untrained.front()));
  testing::run_group(2, [&](const ProcessGroup& group) {
    expect_same_values(values_of_ddp(group, type, true), alone);
    expect_same_values(values_of_fsdp(group, type, true), alone);
    expect_same_values(values_of_fsdp(group, type, false), values_of_ddp(group, type, false));
  });
}

}  // namespace
}  // namespace lockstep::models
