#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/parallel/unit.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/models/parallel_bits.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Fields = nlohmann::ordered_json;

/// The configuration of a text of config.json.
DecoderConfig config_of_text(const std::string& text) {
  const TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", text);
  return DecoderConfig::from_file(folder.path());
}

DecoderConfig golden_decoder(const std::string& name) { return config_of_text(golden_configs().at(name)); }

/// One of the configurations with other fields.
DecoderConfig changed_decoder(const std::string& name, const Fields& fields) {
  Fields json = Fields::parse(golden_configs().at(name));
  json.update(fields);
  return config_of_text(json.dump());
}

DecoderForCausalLM filled_decoder(const DecoderConfig& config, double scale = 1) {
  DecoderForCausalLM model(config);
  model->eval();
  fill(*model, scale);
  return model;
}

std::vector<std::string> decoder_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : golden_configs()) names.push_back(name);
  return names;
}

/// Every family, with each scaling of positions and each switch, in the spelling of transformers 4 or 5.
class Decoder : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, Decoder, ::testing::ValuesIn(decoder_names()),
                         [](const auto& test) { return test.param; });

/// Whether its frequencies are those of the longest text of a batch.
bool depends_on_longest(const std::string& name) {
  return name.starts_with("llama_dynamic") || name == "llama_longrope" || name.starts_with("phi3_");
}

TEST_P(Decoder, AnswersAsItsPeerDoes) {
  const auto& name = GetParam();
  auto model = filled_decoder(golden_decoder(name));
  const at::Tensor tokens = ids(2, 12, 50);
  const at::Tensor logits = model(tokens);
  expect_golden(name + " logits", logits);
  const at::Tensor loss = causal_lm_loss(logits, tokens);
  expect_golden(name + " loss", loss);
  loss.backward();
  const std::string prefix = name + " gradient:";
  std::vector<std::string> parameters;
  for (const auto& [key, values] : golden())
    if (key.starts_with(prefix)) parameters.push_back(key.substr(prefix.size()));
  ASSERT_GE(parameters.size(), 3U);
  expect_gradients(name, *model, parameters);
  const auto [rows, mask] = padded(3, 7, 50, 1);
  expect_golden(name + " padded", model(rows, mask).index({mask.to(at::kBool)}));
}

TEST_P(Decoder, WritesTheTextsOfItsPeer) {
  const auto& name = GetParam();
  if (!golden().contains(name + " greedy")) GTEST_SKIP() << "the peer does not begin again";
  auto model = filled_decoder(golden_decoder(name), 4);
  GenerationConfig settings{.max_new_tokens = 8, .pad_token_id = 1};
  expect_golden(name + " greedy", generate(model, ids(2, 12, 50).narrow(1, 0, 4).contiguous(), settings), 0);
  const auto [rows, mask] = padded(3, 7, 50, 1);
  expect_golden(name + " greedy:padded", generate(model, rows, mask, settings), 0);
  if (!golden().contains(name + " beams:padded")) return;
  settings.num_beams = 3;
  expect_golden(name + " beams:padded", generate(model, rows, mask, settings), 0);
}

/// Padding in front changes no text (huggingface/transformers 30378): each row has the one that it has alone.
TEST_P(Decoder, PaddedTextsContinueAsTheTextsAlone) {
  const auto& name = GetParam();
  if (depends_on_longest(name)) GTEST_SKIP();
  auto model = filled_decoder(golden_decoder(name), 4);
  const GenerationConfig settings{.max_new_tokens = 8, .pad_token_id = 1};
  const auto [rows, mask] = padded(3, 7, 50, 1);
  const at::Tensor together = generate(model, rows, mask, settings);
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const auto length = mask[row].sum().item<std::int64_t>();
    const at::Tensor alone = generate(
        model, rows.narrow(0, row, 1).narrow(1, rows.size(1) - length, length).contiguous(), settings);
    const auto added = alone.size(1) - length;
    EXPECT_TRUE(at::equal(together[row].narrow(0, rows.size(1), added), alone[0].narrow(0, length, added)))
        << row;
  }
}

/// The fields of a file stay as they are, and Python's names are those of the parameters.
TEST_P(Decoder, SavesWhatItRead) {
  const auto& name = GetParam();
  const TemporaryFolder folder, other;
  testing::write_bytes(folder.path() / "config.json", golden_configs().at(name));
  auto model = filled_decoder(DecoderConfig::from_file(folder.path()));
  save_pretrained(model, other.path());
  if (golden().contains(name + " saved:model.norm.weight")) expect_saved_names(name, other.path());
  Fields before = Fields::parse(golden_configs().at(name)),
         after = Fields::parse(testing::read_bytes(other.path() / "config.json"));
  EXPECT_TRUE(after.at("architectures").at(0).get<std::string>().ends_with("ForCausalLM"));
  after.erase("architectures");
  EXPECT_EQ(after, before);
  auto again = AutoModelForCausalLM::from_pretrained(other.path());
  again->eval();
  EXPECT_TRUE(at::equal(again(ids(2, 12, 50)), model(ids(2, 12, 50))));
}

/// A cache, token by token, gives the logits of the whole text: with windows that are shorter than it, and on
/// the way from one list of frequencies to the other.
TEST_P(Decoder, ItsCacheHasTheLogitsOfTheWholeText) {
  const auto& name = GetParam();
  // Keys of a cache keep the frequencies of their time.
  if (name.starts_with("llama_dynamic")) GTEST_SKIP() << "its frequencies change with each token";
  const at::NoGradGuard no_grad;
  DecoderConfig config = golden_decoder(name);
  config.eos_token_id.clear();
  auto model = filled_decoder(config);
  const at::Tensor texts =
      generate(model, ids(2, 12, 50).narrow(1, 0, 2).contiguous(), {.max_new_tokens = 10, .pad_token_id = 1});
  for (std::int64_t length = 2; length < 12; ++length) {
    const at::Tensor next = model(texts.narrow(1, 0, length)).select(1, -1).argmax(-1);
    EXPECT_TRUE(at::equal(next, texts.select(1, length))) << length;
  }
}

TEST_P(Decoder, PackedTextsDoNotSeeEachOther) {
  const auto& name = GetParam();
  if (depends_on_longest(name)) GTEST_SKIP();
  const at::NoGradGuard no_grad;
  auto model = filled_decoder(golden_decoder(name));
  const at::Tensor tokens = ids(1, 12, 50);
  const at::Tensor positions = at::cat({at::arange(7), at::arange(5)}).unsqueeze(0);
  const at::Tensor packed = model(tokens, at::Tensor(), positions);
  EXPECT_TRUE(at::allclose(packed.narrow(1, 0, 7), model(tokens.narrow(1, 0, 7)), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(packed.narrow(1, 7, 5), model(tokens.narrow(1, 7, 5)), 1e-4, 1e-5));
  // Nor with a mask, whose padding is in front, between two texts or at the end.
  for (const std::int64_t place : {0, 7, 12}) {
    const auto with = [&](const at::Tensor& values, std::int64_t padding) {
      const at::Tensor more = at::full({1, 1}, padding, values.options());
      return at::cat({values.narrow(1, 0, place), more, values.narrow(1, place, 12 - place)}, 1);
    };
    const at::Tensor mask = with(at::ones_like(tokens), 0);
    const at::Tensor padded_logits = model(with(tokens, 9), mask, with(positions, 3));
    const at::Tensor apart = (padded_logits.index({mask.to(at::kBool)}) - packed[0]).abs().max();
    EXPECT_LT(apart.item<double>(), 1e-4) << place;
  }
}

TEST_P(Decoder, CheckpointsOfItsLayersChangeNoBit) {
  auto model = filled_decoder(golden_decoder(GetParam()));
  const at::Tensor tokens = ids(2, 12, 50);
  const auto gradients = [&](bool on) {
    set_activation_checkpointing(model, on);
    model->zero_grad();
    causal_lm_loss(model(tokens), tokens).backward();
    std::vector<at::Tensor> all;
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const auto plain = gradients(false), recomputed = gradients(true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
}

/// Each family, and the switches that change modules.
class DecoderInParallel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, DecoderInParallel,
                         ::testing::Values("llama", "llama_biases", "mistral", "qwen2", "qwen3", "gemma",
                                           "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2"),
                         [](const auto& test) { return test.param; });

/// With losses of parts of the logits, three tokens at a time.
TEST_P(DecoderInParallel, DdpFsdpAndOneRankTrainTheSameBits) {
  const auto make = [] {
    const auto model = filled_decoder(golden_decoder(GetParam()));
    return TokenLossModel(CausalLM(std::static_pointer_cast<CausalLMImpl>(model.ptr())));
  };
  const auto loss = [](auto& model, int rank, int step) {
    const at::Tensor tokens = ids(2, 8, 50, 3 + 2 * rank + step);
    const TokenLosses losses =
        model(LabelledTexts{.input_ids = tokens, .labels = tokens, .options = {.logits_at_a_time = 3 * 50}});
    return losses.loss_sum / losses.loss_weight;
  };
  expect_parallel_bits(make, loss);
}

TEST(DecoderConfigs, BothSpellingsSayTheSame) {
  EXPECT_EQ(golden_decoder("llama").ropes, golden_decoder("llama_v5").ropes);
  const auto long_one = golden_decoder("phi3_su").ropes.front().scaling;
  EXPECT_EQ(long_one.rope_type, "longrope");
  // The length for which the programs ask.
  DecoderConfig scaled = golden_decoder("llama");
  const auto longest = scaled.max_position_embeddings;
  for (const char* type : {"linear", "dynamic", "yarn"}) {
    scaled.ropes.front().scaling = {
        .rope_type = type, .factor = 4, .original_max_position_embeddings = longest};
    EXPECT_EQ(scaled.model_config().max_position_embeddings, 4 * longest) << type;
    EXPECT_EQ(scaled.max_position_embeddings, longest) << type;
  }
  EXPECT_EQ(long_one.original_max_position_embeddings, 9);
  // Missing is not null: Mistral's first version had a window, which its file need not name.
  Fields fields = Fields::parse(golden_configs().at("mistral"));
  fields.erase("sliding_window");
  EXPECT_EQ(config_of_text(fields.dump()).layers.front().window, 4096);
  EXPECT_EQ(golden_decoder("mistral_open").layers.front().window, 0);
}

TEST(DecoderConfigs, ChangedFieldsAreSaved) {
  for (const char* name : {"llama", "llama_v5"}) {
    DecoderConfig config = golden_decoder(name);
    config.ropes.front() = {.theta = 700, .scaling = {.rope_type = "linear", .factor = 2}};
    config.rms_norm_eps = 1e-4;
    const DecoderConfig again = config_of_text(config.to_json());
    EXPECT_EQ(again.ropes, config.ropes) << name;
    EXPECT_EQ(again.rms_norm_eps, 1e-4) << name;
  }
}

TEST(DecoderConfigs, EachFamilySaysItsDefaults) {
  for (const auto& type : DecoderConfig::model_types())
    EXPECT_NO_THROW(DecoderConfig::of(type).to_json()) << type;
}

TEST(DecoderConfigs, WhatTheFamilyCannotSayIsNotLostInSilence) {
  auto config = DecoderConfig::of("llama");
  config.qk_norm = QkNorm::head;
  config.logits_softcap = 30;
  config.layers.front().window = 32;
  config.resid_pdrop = 0.1;
  EXPECT_THROWS(config.to_json(), UsageError,
                "config.json of a 'llama' cannot say what this model does: qk_norm, logits_softcap, layers, "
                "resid_pdrop.");
}

TEST(DecoderConfigs, WhatIsNotImplementedIsNamed) {
  EXPECT_THROWS(changed_decoder("llama", {{"num_local_experts", 8}}), DataError, "config.json",
                "'num_local_experts' is 8", "mixtures of experts");
  EXPECT_THROWS(changed_decoder("llama", {{"vision_config", Fields::object()}}), DataError, "'vision_config'",
                "images");
  EXPECT_THROWS(changed_decoder("llama", {{"quantization_config", {{"bits", 4}}}}), DataError,
                "'quantization_config'");
  EXPECT_THROWS(changed_decoder("llama", {{"model_type", "mixtral"}, {"num_local_experts", 8}}), DataError,
                "\"mixtral\"", "mixture of experts", "llama, ");
  EXPECT_THROWS(changed_decoder("llama", {{"model_type", "gemma3"}, {"vision_config", Fields::object()}}),
                DataError, "\"gemma3\"", "images", "gemma3_text");
  EXPECT_THROWS(changed_decoder("gemma3", {{"use_bidirectional_attention", true}}), DataError,
                "'use_bidirectional_attention'");
  EXPECT_THROWS(changed_decoder("llama", {{"rope_scaling", {{"type", "ntk"}}}}), DataError, "'rope_scaling'",
                "\"ntk\"", "longrope");
  EXPECT_THROWS(changed_decoder("llama", {{"rope_scaling", {{"type", "linear"}}}}), DataError,
                "'factor' is missing");
  EXPECT_THROWS(
      changed_decoder("llama", {{"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {1, 2}}}}}),
      DataError, "'mrope_section'");
  EXPECT_THROWS(changed_decoder("llama", {{"partial_rotary_factor", 0.5}}), DataError,
                "'partial_rotary_factor' is 0.5");
  EXPECT_THROWS(changed_decoder("mistral", {{"layer_types", {"sliding_attention", "full_attention"}}}),
                DataError, "'layer_types'", "the same window");
  EXPECT_THROWS(changed_decoder("qwen3", {{"layer_types", {"full_attention", "chunked_attention"}}}),
                DataError, "'layer_types'", "chunked_attention");
  EXPECT_THROWS(
      changed_decoder("qwen2_no_window", {{"layer_types", {"full_attention", "sliding_attention"}}}),
      DataError, "'layer_types'", "no 'sliding_window'");
  EXPECT_THROWS(changed_decoder("llama", {{"num_key_value_heads", 3}}), DataError,
                "'num_attention_heads' is 4", "3");
  EXPECT_THROWS(DecoderConfig::of("bert"), UsageError, "'bert'", "'qwen3'");
  DecoderConfig config = golden_decoder("phi3_long");
  config.ropes.front().scaling.long_factor.pop_back();
  EXPECT_THROWS(DecoderForCausalLM{config}, UsageError, "3 frequencies", "2");
}

/// A file whose head differs from the embedding, although the configuration says that they are one.
TEST(DecoderConfigs, AHeadOfItsOwnIsNotDropped) {
  const TemporaryFolder folder;
  auto model = filled_decoder(golden_decoder("llama"));
  save_pretrained(model, folder.path());
  Fields fields = Fields::parse(golden_configs().at("llama"));
  fields["tie_word_embeddings"] = true;
  testing::write_bytes(folder.path() / "config.json", fields.dump());
  EXPECT_THROWS(load_decoder(folder.path()), DataError, "'lm_head.weight' is not the embedding",
                "'tie_word_embeddings'", "config.json");
  {
    const at::NoGradGuard no_grad;
    model->named_parameters()["lm_head.weight"].copy_(model->named_parameters()["model.embed_tokens.weight"]);
  }
  save_pretrained(model, folder.path());
  testing::write_bytes(folder.path() / "config.json", fields.dump());
  EXPECT_NO_THROW(load_decoder(folder.path()));
}

/// Phases of 4000 positions are not those of bfloat16, which has 8 bits.
TEST(Decoders, PositionsStayFloat32) {
  const at::NoGradGuard no_grad;
  auto model = filled_decoder(golden_decoder("qwen3"));
  const at::Tensor tokens = ids(1, 6, 50), far = at::arange(4000, 4006).unsqueeze(0);
  const at::Tensor near = model(tokens);
  // Rotary positions are relative.
  EXPECT_TRUE(at::allclose(model(tokens, at::Tensor(), far), near, 1e-3, 1e-3));
  model->to(at::kBFloat16);
  const at::Tensor low = model(tokens, at::Tensor(), far).to(at::kFloat);
  EXPECT_LT((low - near).abs().max().item<double>(), 0.1 * near.abs().max().item<double>());
  EXPECT_TRUE(model->named_buffers().is_empty());
}

TEST(Decoders, TakeTextsThatAreLongerThanTheyWereMadeFor) {
  const at::NoGradGuard no_grad;
  auto model = filled_decoder(golden_decoder("llama_dynamic"));
  EXPECT_EQ(model(ids(1, 40, 50)).size(1), 40);
  EXPECT_THROWS(model(ids(1, 4, 50).flatten()), UsageError, "llama takes input_ids [rows, tokens]");
}

}  // namespace
}  // namespace lockstep::models
