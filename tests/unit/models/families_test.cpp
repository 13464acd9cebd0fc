#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/opt.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

template <class Model>
void expect_padded_texts(const std::string& name, Model& model, const GenerationConfig& config) {
  const auto [tokens, mask] = padded(3, 7, 50, 1);
  expect_texts(
      name + " padded:",
      [&, &rows = tokens, &row_mask = mask](const GenerationConfig& all) {
        return generate(model, rows, row_mask, all);
      },
      config);
}

OptConfig small_opt() {
  return {.vocab_size = 50,
          .hidden_size = 24,
          .num_hidden_layers = 2,
          .ffn_dim = 40,
          .max_position_embeddings = 32,
          .num_attention_heads = 3};
}

OptConfig opt_after() {
  auto config = small_opt();
  config.do_layer_norm_before = false;
  config.word_embed_proj_dim = 16;
  return config;
}

OptConfig opt_bare() {
  auto config = small_opt();
  config.enable_bias = config.layer_norm_elementwise_affine = false;
  config.remove_final_layer_norm = true;
  config.activation_function = "gelu";
  return config;
}

void expect_opt(const std::string& name, const OptConfig& config) {
  OptForCausalLM model(config);
  model->eval();
  fill(*model);
  const at::Tensor tokens = ids(2, 10, 50);
  const at::Tensor logits = model(tokens);
  expect_golden(name + " logits", logits);
  const at::Tensor loss = causal_lm_loss(logits, tokens);
  expect_golden(name + " loss", loss);
  loss.backward();
  expect_gradients(name, *model,
                   {"model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight",
                    "model.decoder.layers.1.self_attn.q_proj.weight", "model.decoder.layers.0.fc2.weight"});
  const auto [rows, mask] = padded(3, 7, 50, 1);
  expect_golden(name + " padded", model(rows, mask).index({mask.to(at::kBool)}));
  fill(*model, 6);
  const at::Tensor start = tokens.narrow(1, 0, 4).contiguous();
  expect_texts(name + " ", [&](const GenerationConfig& all) { return generate(model, start, all); }, {});
  expect_padded_texts(name, model, {});
}

TEST(Families, OptAnswersAsItsPeerDoes) {
  expect_opt("opt", small_opt());
  expect_opt("opt_after", opt_after());
  expect_opt("opt_bare", opt_bare());
}

TEST(Families, SavesTheNamesOfItsPeers) {
  expect_saved("opt", OptForCausalLM(small_opt()));
  expect_saved("opt_after", OptForCausalLM(opt_after()));
  expect_saved("opt_bare", OptForCausalLM(opt_bare()));
}

/// A batch of texts of different lengths has the texts of its rows alone.
TEST(Families, PaddingInFrontChangesNoText) {
  Gpt2LMHeadModel gpt2(Gpt2Config{.vocab_size = 50,
                                  .n_positions = 32,
                                  .n_embd = 24,
                                  .n_layer = 2,
                                  .n_head = 3,
                                  .bos_token_id = 49,
                                  .eos_token_id = 49});
  gpt2->eval();
  fill(*gpt2, 6);
  expect_padded_texts("gpt2", gpt2, {});
  const auto [tokens, mask] = padded(3, 7, 50, 1);
  for (const std::int64_t beams : {1, 3}) {
    const GenerationConfig config{
        .max_new_tokens = 8, .eos_token_id = 17, .pad_token_id = 1, .num_beams = beams};
    const at::Tensor all = generate(gpt2, tokens, mask, config);
    for (std::int64_t row = 0; row < 3; ++row) {
      const std::int64_t first = row == 0 ? 0 : row + 1;
      const at::Tensor alone = generate(gpt2, tokens[row].unsqueeze(0).narrow(1, first, 7 - first), config);
      EXPECT_TRUE(at::equal(all[row].narrow(0, first, alone.size(1)), alone[0])) << row << " " << beams;
    }
  }
  EXPECT_THROWS(generate(gpt2, tokens, mask.flip(1), {}), UsageError, "padding in front");
  EXPECT_THROWS(generate(gpt2, tokens, mask.narrow(1, 0, 3), {}), UsageError, "[3, 7]", "[3, 3]");
}

BartConfig small(const std::string& model_type, std::int64_t padding = 1) {
  BartConfig config = BartConfig::of(model_type);
  config.vocab_size = config.decoder_vocab_size = 50;
  config.max_position_embeddings = 32;
  config.d_model = 24;
  config.encoder_layers = config.decoder_layers = 2;
  config.encoder_attention_heads = config.decoder_attention_heads = 3;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 40;
  config.pad_token_id = padding;
  return config;
}

BartConfig small_m2m100() {
  auto config = small("m2m_100");
  config.dropout = config.attention_dropout = 0;
  return config;
}

BartConfig small_mbart() {
  auto config = small("mbart");
  config.decoder_start_token_id = 2;
  config.scale_embedding = true;
  return config;
}

BartConfig small_marian() {
  auto config = small("marian", 49);
  config.decoder_start_token_id = 49;
  config.activation_function = "swish";
  config.scale_embedding = true;
  return config;
}

/// With a vocabulary of the target's own.
BartConfig marian_two() {
  auto config = small("marian", 39);
  config.decoder_start_token_id = 39;
  config.share_encoder_decoder_embeddings = false;
  config.decoder_vocab_size = 40;
  return config;
}

/// Source texts, the last of which is shorter, and target texts.
struct Pairs {
  explicit Pairs(const BartConfig& config)
      : tokens(ids(3, 8, 50)),
        mask(at::ones({3, 8}, at::kLong)),
        labels(ids(3, 6, config.share_encoder_decoder_embeddings ? 50 : config.decoder_vocab_size, 5)) {
    mask[2].narrow(0, 5, 3).zero_();
    tokens[2].narrow(0, 5, 3).fill_(config.pad_token_id);
    labels[1].narrow(0, 4, 2).fill_(-100);
  }
  at::Tensor tokens, mask, labels;
};

void expect_translator(const std::string& name, const BartConfig& config,
                       std::optional<std::int64_t> language = {}) {
  BartForConditionalGeneration model(config);
  model->eval();
  fill(*model);
  const Pairs pairs(config);
  const at::Tensor logits = model(pairs.tokens, pairs.mask, model->decoder_inputs(pairs.labels));
  expect_golden(name + " logits", logits);
  const at::Tensor loss = sequence_loss(logits, pairs.labels);
  expect_golden(name + " loss", loss);
  loss.backward();
  expect_gradients(
      name, *model,
      {config.share_encoder_decoder_embeddings ? "model.shared.weight" : "model.decoder.embed_tokens.weight",
       "model.encoder.layers.1.fc1.weight", "model.decoder.layers.0.encoder_attn.q_proj.weight",
       "model.decoder.layers.1.final_layer_norm.weight"});
  fill(*model, 6);
  const auto texts = [&](const GenerationConfig& all) {
    return generate(model, pairs.tokens, pairs.mask, all);
  };
  GenerationConfig settings{.forced_bos_token_id = language};
  expect_texts(name + " ", texts, settings);
  settings.eos_token_id = 14;
  expect_texts(name + " end:", texts, settings);
}

TEST(Families, M2m100AnswersAsItsPeerDoes) { expect_translator("m2m100", small_m2m100(), 7); }
TEST(Families, MBartAnswersAsItsPeerDoes) { expect_translator("mbart", small_mbart(), 7); }
TEST(Families, MarianAnswersAsItsPeerDoes) { expect_translator("marian", small_marian()); }
TEST(Families, MarianWithTwoVocabulariesAnswersAsItsPeerDoes) {
  expect_translator("marian_two", marian_two());
}

TEST(Families, TranslatorsSaveTheNamesOfTheirPeers) {
  expect_saved("m2m100", BartForConditionalGeneration(small_m2m100()));
  expect_saved("mbart", BartForConditionalGeneration(small_mbart()));
  expect_saved("marian", BartForConditionalGeneration(small_marian()));
  expect_saved("marian_two", BartForConditionalGeneration(marian_two()));
}

TEST(Families, SkipsTheLayersThatItsPeerSkips) {
  auto config = small_m2m100();
  config.encoder_layerdrop = config.decoder_layerdrop = 0.5;
  BartForConditionalGeneration model(config);
  fill(*model);
  model->train();
  torch::manual_seed(5);
  const Pairs pairs(config);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor logits = model(pairs.tokens, pairs.mask, model->decoder_inputs(pairs.labels));
    expect_golden("m2m100 dropped:" + std::to_string(step), sequence_loss(logits, pairs.labels));
  }
}

/// All parameters get gradients, so that ranks which skip different layers exchange the same tensors.
TEST(Families, ASkippedLayerHasGradientsOfZero) {
  auto config = small_m2m100();
  config.encoder_layerdrop = 1;
  config.decoder_layerdrop = 0;
  BartForConditionalGeneration model(config);
  model->train();
  const Pairs pairs(config);
  sequence_loss(model(pairs.tokens, pairs.mask, model->decoder_inputs(pairs.labels)), pairs.labels)
      .backward();
  for (const auto& entry : model->named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    if (entry.key().starts_with("model.encoder.layers.")) {
      EXPECT_FALSE(entry.value().grad().any().item<bool>()) << entry.key();
    }
  }
}

/// Its positions are computed, whatever the length and the dtype.
TEST(Families, AnM2m100TakesTextsOfAnyLength) {
  BartForConditionalGeneration model(small_m2m100());
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = ids(1, 50, 47, 3) + 2;
  const at::Tensor logits = model(tokens, at::Tensor(), tokens.narrow(1, 0, 3));
  EXPECT_TRUE(at::isfinite(logits).all().item<bool>());
  model->to(at::kBFloat16);
  EXPECT_TRUE(
      at::allclose(model(tokens, at::Tensor(), tokens.narrow(1, 0, 3)).to(at::kFloat), logits, 0.05, 0.05));
  BartForConditionalGeneration marian(small_marian());
  EXPECT_THROWS(marian(tokens, at::Tensor(), tokens), UsageError, "Marian takes input_ids",
                "at most 32 tokens");
}

TEST(Families, ATypeThatIsNoneOfThemIsNamed) {
  BartConfig config;
  config.model_type = "t5";
  EXPECT_THROWS(BartForConditionalGeneration(config), UsageError, "'t5'", "m2m_100");
  EXPECT_THROWS(OptForCausalLM(OptConfig{.hidden_size = 25, .num_attention_heads = 3}), UsageError, "25",
                "(3)");
}

}  // namespace
}  // namespace lockstep::models
