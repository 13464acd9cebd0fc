#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/parallel/unit.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Fields = nlohmann::ordered_json;
namespace F = torch::nn::functional;

Fields golden_fields(const std::string& name) { return Fields::parse(golden_configs().at(name)); }

EncoderConfig config_of_fields(const Fields& fields) {
  const TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", fields.dump());
  return EncoderConfig::from_file(folder.path());
}

EncoderConfig golden_encoder(const std::string& name) { return config_of_fields(golden_fields(name)); }

EncoderConfig changed_encoder(const std::string& name, const Fields& changes) {
  Fields fields = golden_fields(name);
  fields.update(changes);
  return config_of_fields(fields);
}

template <class Model>
Model filled_encoder(const EncoderConfig& config) {
  Model model(config);
  model->eval();
  fill(*model);
  return model;
}

std::vector<std::string> encoder_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : golden_configs()) names.push_back(name);
  return names;
}

/// Texts with padding at the end, as make_encoders.py's inputs().
struct PaddedTexts {
  explicit PaddedTexts(const EncoderConfig& config)
      : tokens(ids(3, 9, 60)),
        mask(at::ones({3, 9}, at::kLong)),
        types((at::arange(9) > 4).to(at::kLong).expand({3, 9})) {
    const auto padding = config.pad_token_id.value_or(0);
    mask[1].narrow(0, 6, 3).zero_();
    tokens[1].narrow(0, 6, 3).fill_(padding);
    tokens[2][4] = padding;
  }
  /// Those of make_encoders.py's task().
  at::Tensor labels(std::int64_t classes) const {
    at::Tensor all = ids(3, 9, classes, 1).masked_fill(mask == 0, -100);
    for (std::int64_t i = 0; i < 9; i += 2) all.select(1, i).fill_(-100);
    return all;
  }
  at::Tensor tokens, mask, types;
};

/// The gradients that the peer shows.
void expect_all_gradients(const std::string& task, torch::nn::Module& module) {
  const std::string prefix = task + ":gradient:";
  const auto parameters = module.named_parameters();
  std::size_t count = 0;
  for (const auto& [key, values] : golden()) {
    if (!key.starts_with(prefix)) continue;
    const auto* parameter = parameters.find(key.substr(prefix.size()));
    ASSERT_NE(parameter, nullptr) << key;
    expect_golden(key, parameter->grad(), 1e-4);
    ++count;
  }
  EXPECT_GE(count, 5U) << task;
}

/// Every family, in the spelling of transformers 4 and 5.
class Encoder : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, Encoder, ::testing::ValuesIn(encoder_names()),
                         [](const auto& test) { return test.param; });

TEST_P(Encoder, AnswersAsItsPeerDoes) {
  const auto& name = GetParam();
  const EncoderConfig config = golden_encoder(name);
  auto model = filled_encoder<EncoderModel>(config);
  const PaddedTexts texts(config);
  const auto output = model(texts.tokens, texts.mask, texts.types);
  expect_golden(name + " body:hidden", output.last_hidden_state.index({texts.mask.to(at::kBool)}));
  EXPECT_EQ(output.pooler_output.defined(), golden().contains(name + " body:pooled"));
  if (output.pooler_output.defined()) expect_golden(name + " body:pooled", output.pooler_output);
  const auto [rows, mask] = padded(3, 7, 60, config.pad_token_id.value_or(0));
  expect_golden(name + " body:front", model(rows, mask).last_hidden_state.index({mask.to(at::kBool)}));
  const at::Tensor places = (at::arange(9).mul(2).unsqueeze(0) + at::arange(3).unsqueeze(1)).remainder(9);
  expect_golden(name + " body:places",
                model(ids(3, 9, 60), at::ones({3, 9}, at::kLong), at::Tensor(), places).last_hidden_state);
}

TEST_P(Encoder, ClassifiesTextsAsItsPeerDoes) {
  const auto& name = GetParam();
  const EncoderConfig config = golden_encoder(name);
  auto model = filled_encoder<EncoderForSequenceClassification>(config);
  const PaddedTexts texts(config);
  const at::Tensor logits = model(texts.tokens, texts.mask, texts.types);
  expect_golden(name + " texts:logits", logits);
  const at::Tensor loss = F::cross_entropy(logits, at::tensor({0, 2, 1}, at::kLong));
  expect_golden(name + " texts:loss", loss);
  loss.backward();
  expect_all_gradients(name + " texts", *model);
}

TEST_P(Encoder, ClassifiesTokensAsItsPeerDoes) {
  const auto& name = GetParam();
  const EncoderConfig config = golden_encoder(name);
  auto model = filled_encoder<EncoderForTokenClassification>(config);
  const PaddedTexts texts(config);
  const at::Tensor logits = model(texts.tokens, texts.mask, texts.types);
  expect_golden(name + " tokens:logits", logits.index({texts.mask.to(at::kBool)}));
  const at::Tensor loss = sequence_loss(logits, texts.labels(3));
  expect_golden(name + " tokens:loss", loss);
  loss.backward();
  expect_all_gradients(name + " tokens", *model);
}

TEST_P(Encoder, PredictsMaskedWordsAsItsPeerDoes) {
  const auto& name = GetParam();
  const EncoderConfig config = golden_encoder(name);
  auto model = filled_encoder<EncoderForMaskedLM>(config);
  const PaddedTexts texts(config);
  const at::Tensor logits = model(texts.tokens, texts.mask, texts.types);
  expect_golden(name + " masked:logits", logits.index({texts.mask.to(at::kBool)}));
  // Of whole logits, and of those of two tokens at a time.
  for (const std::int64_t at_a_time : {0, 120}) {
    model->zero_grad();
    const auto losses = model->token_losses(texts.labels(60), {.logits_at_a_time = at_a_time}, texts.tokens,
                                            texts.mask, texts.types);
    const at::Tensor loss = losses.loss_sum / losses.loss_weight;
    expect_golden(name + " masked:loss", loss);
    loss.backward();
    expect_all_gradients(name + " masked", *model);
  }
}

/// A file of one task: the fields stay as they are, and the names are Python's.
template <class Model, class AutoModelOfTask>
void expect_saved_again(const std::string& name, const std::string& task, const std::string& architecture) {
  const TemporaryFolder folder, other;
  testing::write_bytes(folder.path() / "config.json", golden_configs().at(name));
  auto model = filled_encoder<Model>(EncoderConfig::from_file(folder.path()));
  save_pretrained(model, other.path());
  const std::string saved = name + "." + task;
  const bool has_own_head = task == "masked" && !model->config().tie_word_embeddings;
  if (name.find('_') == std::string::npos || has_own_head) expect_saved_names(saved, other.path());
  Fields before = golden_fields(name),
         after = Fields::parse(testing::read_bytes(other.path() / "config.json"));
  EXPECT_TRUE(after.at("architectures").at(0).get<std::string>().ends_with(architecture)) << after;
  after.erase("architectures");
  EXPECT_EQ(after, before) << saved;
  PretrainedReport report;
  const auto again = AutoModelOfTask::from_pretrained(other.path(), {.report = &report});
  EXPECT_TRUE(report.initialized.empty() && report.unused.empty()) << saved;
  const auto values = again->named_parameters();
  for (const auto& entry : model->named_parameters())
    EXPECT_TRUE(at::equal(values[entry.key()], entry.value())) << saved << " " << entry.key();
}

TEST_P(Encoder, SavesWhatItRead) {
  const auto& name = GetParam();
  expect_saved_again<EncoderModel, AutoModel>(name, "body", "Model");
  expect_saved_again<EncoderForSequenceClassification, AutoModelForSequenceClassification>(
      name, "texts", "ForSequenceClassification");
  expect_saved_again<EncoderForTokenClassification, AutoModelForTokenClassification>(
      name, "tokens", "ForTokenClassification");
  expect_saved_again<EncoderForMaskedLM, AutoModelForMaskedLM>(name, "masked", "ForMaskedLM");
}

/// How many tensors of the head for masked words no classifier has.
std::size_t masked_alone(const EncoderForMaskedLM& model) {
  const EncoderConfig& config = model->config();
  // A ModernBERT's classifiers have the first layer and the norm, too.
  std::size_t count = config.model_type == "modernbert" ? 0 : 4;
  if (config.modern.decoder_bias) ++count;
  if (!config.tie_word_embeddings) ++count;
  if (model->unused_bias().defined()) ++count;
  return count;
}

/// The body of any task's file is the same, whatever its head; heads that the file does not have are new.
TEST_P(Encoder, TakesTheBodyOfOtherTasks) {
  const EncoderConfig config = golden_encoder(GetParam());
  const TemporaryFolder folder;
  auto masked = filled_encoder<EncoderForMaskedLM>(config);
  save_pretrained(masked, folder.path());
  PretrainedReport report;
  const auto classifier =
      AutoModelForTokenClassification::from_pretrained(folder.path(), {.num_labels = 5, .report = &report});
  EXPECT_EQ(report.initialized, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  const std::size_t alone = masked_alone(masked);
  EXPECT_EQ(report.unused.size(), alone);
  EXPECT_EQ(classifier->model_config().num_labels, 5);
  const auto theirs = masked->named_parameters();
  for (const auto& entry : classifier->named_parameters()) {
    if (!entry.key().starts_with("classifier.")) {
      EXPECT_TRUE(at::equal(entry.value(), theirs[entry.key()])) << entry.key();
    }
  }
  AutoModelForSequenceClassification::from_pretrained(folder.path(), {.report = &report});
  for (const auto& name : report.initialized)
    EXPECT_TRUE(name.find("classifier.") != std::string::npos || name.find("pooler.") != std::string::npos)
        << name;
  save_pretrained(classifier, folder.path() / "classifier");
  AutoModelForMaskedLM::from_pretrained(folder.path() / "classifier", {.report = &report});
  EXPECT_EQ(report.initialized.size(), alone);
}

TEST_P(Encoder, PackedTextsDoNotSeeEachOther) {
  const at::NoGradGuard no_grad;
  auto model = filled_encoder<EncoderModel>(golden_encoder(GetParam()));
  // Without a token that has the id of padding, which is at other places alone than among others.
  const at::Tensor tokens = ids(1, 12, 50) + 6;
  const at::Tensor positions = at::cat({at::arange(7), at::arange(5)}).unsqueeze(0);
  const auto states = [&](std::int64_t begin, std::int64_t length) {
    return model(tokens.narrow(1, begin, length)).last_hidden_state;
  };
  const at::Tensor packed = model(tokens, at::Tensor(), at::Tensor(), positions).last_hidden_state;
  EXPECT_TRUE(at::allclose(packed.narrow(1, 0, 7), states(0, 7), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(packed.narrow(1, 7, 5), states(7, 5), 1e-4, 1e-5));
}

TEST_P(Encoder, CheckpointsOfItsLayersChangeNoBit) {
  const EncoderConfig config = golden_encoder(GetParam());
  auto model = filled_encoder<EncoderForMaskedLM>(config);
  const PaddedTexts texts(config);
  const auto gradients = [&](bool on) {
    set_activation_checkpointing(model, on);
    model->zero_grad();
    model->token_losses(texts.labels(60), {}, texts.tokens, texts.mask).loss_sum.backward();
    std::vector<at::Tensor> all;
    for (const auto& entry : model->named_parameters())
      if (entry.value().grad().defined()) all.push_back(entry.value().grad().clone());
    return all;
  };
  const auto plain = gradients(false), recomputed = gradients(true);
  ASSERT_EQ(plain.size(), recomputed.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
}

/// PEFT's own choice, which it has for all but DistilBERT and ModernBERT; "all-linear" leaves the classifier
/// out.
TEST_P(Encoder, TakesAdapters) {
  const auto& name = GetParam();
  const bool is_modern = name.starts_with("modernbert");
  const bool has_targets = !name.starts_with("distilbert") && !is_modern;
  auto model = filled_encoder<EncoderForTokenClassification>(golden_encoder(name));
  if (has_targets) {
    const auto config = add_lora(model, {.r = 2});
    EXPECT_EQ(config->target_modules.names(), (std::vector<std::string>{"query", "value"}));
    EXPECT_EQ(config->task_type, "TOKEN_CLS");
    EXPECT_EQ(adapter_state(*model).size(), 2U * 2 * 2 + 2);
  } else {
    EXPECT_THROWS(add_lora(model, {.r = 2}), UsageError, "no usual target_modules");
  }
  auto masked = filled_encoder<EncoderForMaskedLM>(golden_encoder(name));
  add_lora(masked, {.r = 2, .target_modules = "all-linear"});
  const bool projects = name == "electra";
  const std::size_t in_layers = is_modern ? 4 * 3 : 6 * 2;
  EXPECT_EQ(adapter_state(*masked).size(), 2U * (in_layers + 1 + (projects ? 1 : 0)));
}

/// A token sees so many to each side; padding that only sees padding has finite states and gradients.
TEST(Encoders, WindowsOfAModernBert) {
  Fields fields = golden_fields("modernbert");
  fields["num_hidden_layers"] = 1;
  fields["layer_types"] = {"sliding_attention"};
  auto model = filled_encoder<EncoderModel>(config_of_fields(fields));
  const at::Tensor tokens = ids(1, 12, 50) + 6;
  at::Tensor changed = tokens.clone();
  changed[0][0] += 1;
  const at::Tensor differs =
      (model(tokens).last_hidden_state - model(changed).last_hidden_state).abs().amax(2).ne(0);
  EXPECT_TRUE(at::equal(differs[0], at::arange(12) < 3)) << differs;
  at::Tensor mask = at::ones({1, 12}, at::kLong);
  mask[0].narrow(0, 4, 8).zero_();
  const at::Tensor states = model(tokens, mask).last_hidden_state;
  EXPECT_TRUE(
      at::allclose(states.narrow(1, 0, 4), model(tokens.narrow(1, 0, 4)).last_hidden_state, 1e-5, 1e-5));
  states.narrow(1, 0, 4).sum().backward();
  for (const auto& entry : model->named_parameters())
    EXPECT_TRUE(entry.value().grad().isfinite().all().item<bool>()) << entry.key();
}

/// As in files before transformers 4.48: no theta for the layers with a window means that of the others.
TEST(Encoders, PositionsOfAModernBert) {
  const EncoderConfig config = changed_encoder("modernbert", {{"local_rope_theta", nullptr}});
  EXPECT_EQ(config.modern.local_rope_theta, 500);
  EXPECT_FALSE(config.modern.has_rope_parameters);
  const EncoderConfig other = golden_encoder("modernbert_5");
  EXPECT_EQ(other.modern.global_rope_theta, 900);
  EXPECT_EQ(other.modern.local_rope_theta, 20);
  const EncoderConfig usual = EncoderConfig::of("modernbert");
  EXPECT_EQ(usual.hidden_dropout_prob + usual.attention_probs_dropout_prob, 0);
  EXPECT_EQ(usual.model_config().max_position_embeddings, 8192);
  // Longer texts than it was trained for.
  auto model = filled_encoder<EncoderModel>(config);
  EXPECT_EQ(model(ids(1, 30, 50)).last_hidden_state.size(1), 30);
}

/// Cut off at two deviations, and smaller where a layer adds to the states.
TEST(Encoders, NewWeightsOfAModernBert) {
  torch::manual_seed(3);
  EncoderForSequenceClassification model(golden_encoder("modernbert"));
  const auto parameters = model->named_parameters();
  const auto largest = [&](const char* name) { return parameters[name].abs().max().item<double>(); };
  EXPECT_NEAR(largest("model.layers.1.attn.Wqkv.weight"), 0.04, 0.001);
  EXPECT_NEAR(largest("model.layers.1.attn.Wo.weight"), 0.04 / std::sqrt(6.0), 0.001);
  EXPECT_NEAR(largest("classifier.weight"), 2 / std::sqrt(32.0), 0.05);
  EXPECT_NEAR(parameters["model.embeddings.tok_embeddings.weight"].std().item<double>(), 0.0176, 0.001);
  EncoderForMaskedLM masked(changed_encoder("modernbert", {{"tie_word_embeddings", false}}));
  const at::Tensor head = masked->head().weight;
  EXPECT_TRUE(head.requires_grad());
  EXPECT_NEAR(head.abs().max().item<double>(), 0.04 / std::sqrt(6.0), 0.001);
  EXPECT_NEAR(head.std().item<double>(), 0.0176 / std::sqrt(6.0), 0.0005);
}

/// Of configurations that are made in code.
TEST(Encoders, ChecksTheFieldsOfAModernBert) {
  const auto with = [](auto change) {
    EncoderConfig config = golden_encoder("modernbert");
    change(config.modern);
    return config;
  };
  using Own = ModernBertFields;
  const auto pooling = with([](Own& own) { own.classifier_pooling = "max"; });
  EXPECT_THROWS(EncoderModel{pooling}, UsageError, "classifier_pooling is 'max'", "cls, mean");
  const auto activation = with([](Own& own) { own.classifier_activation = "elu"; });
  EXPECT_THROWS(EncoderModel{activation}, UsageError, "classifier_activation is 'elu'", "gelu, gelu_new");
  const auto layers = with([](Own& own) { own.layer_types = {"full_attention", "global", "global"}; });
  EXPECT_THROWS(EncoderModel{layers}, UsageError, "layer_types is 'global'",
                "full_attention, sliding_attention");
  const auto theta = with([](Own& own) { own.local_rope_theta = 0; });
  EXPECT_THROWS(EncoderModel{theta}, UsageError, "local_rope_theta (0) must be more than 0");
}

/// transformers 4 wrote one bias of a head with weights of its own, under the name that 5 does not use.
TEST(Encoders, TakesTheOneBiasOfOldUntiedHeads) {
  const TemporaryFolder folder;
  auto model = filled_encoder<EncoderForMaskedLM>(golden_encoder("roberta_5"));
  EXPECT_NE(model->head().weight.unsafeGetTensorImpl(),
            model->named_parameters()["roberta.embeddings.word_embeddings.weight"].unsafeGetTensorImpl());
  save_pretrained(model, folder.path());
  auto tensors = load_file(folder.path() / "model.safetensors").tensors;
  tensors.erase("lm_head.decoder.bias");
  save_file(tensors, folder.path() / "model.safetensors");
  PretrainedReport report;
  const auto old = AutoModelForMaskedLM::from_pretrained(folder.path(), {.report = &report});
  EXPECT_TRUE(report.initialized.empty());
  EXPECT_TRUE(at::equal(old->head().bias, model->unused_bias()));
}

/// A text of a RoBERTa may have as many tokens as its table has rows behind that of padding.
TEST(Encoders, PositionsOfARobertaBeginBehindPadding) {
  const at::NoGradGuard no_grad;
  const EncoderConfig config = golden_encoder("roberta");
  EXPECT_EQ(config.max_position_embeddings, 26);
  EXPECT_EQ(config.model_config().max_position_embeddings, 24);
  auto model = filled_encoder<EncoderModel>(config);
  const at::Tensor tokens = ids(1, 24, 50) + 6;
  EXPECT_TRUE(
      at::equal(model(tokens).last_hidden_state,
                model(tokens, at::Tensor(), at::Tensor(), at::arange(24).unsqueeze(0)).last_hidden_state));
  EXPECT_THROWS(model(ids(1, 25, 50) + 6), UsageError, "RoBERTa takes input_ids", "at most 24 tokens");
}

TEST(Encoders, NormsOfTensorFlowAreReadAndWrittenAgain) {
  const TemporaryFolder folder;
  auto model = filled_encoder<EncoderForMaskedLM>(golden_encoder("electra"));
  save_pretrained(model, folder.path());
  TensorMap published;
  for (auto& [name, tensor] : load_file(folder.path() / "model.safetensors").tensors) {
    std::string old = name;
    for (const auto& [now, then] :
         {std::pair("LayerNorm.weight", "LayerNorm.gamma"), std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
      if (old.ends_with(now)) old.replace(old.size() - std::string(now).size(), std::string::npos, then);
    }
    published[old] = tensor;
  }
  published["electra.embeddings.position_ids"] = at::arange(24).unsqueeze(0);
  published["generator_lm_head.weight"] = model->head().weight.detach().clone();
  save_file(published, folder.path() / "model.safetensors");
  PretrainedReport report;
  auto again = AutoModelForMaskedLM::from_pretrained(folder.path(), {.report = &report});
  EXPECT_TRUE(report.initialized.empty());
  again->eval();
  EXPECT_TRUE(at::equal(again(ids(2, 5, 60)), model(ids(2, 5, 60))));
  save_pretrained(again, folder.path() / "again");
  EXPECT_TRUE(load_file(folder.path() / "again/model.safetensors")
                  .tensors.contains("generator_predictions.LayerNorm.gamma"));
  // A head of its own is not dropped.
  published["generator_lm_head.weight"] += 1;
  save_file(published, folder.path() / "model.safetensors");
  EXPECT_THROWS(AutoModelForMaskedLM::from_pretrained(folder.path()), DataError,
                "'generator_lm_head.weight' is not the embedding");
}

TEST(Encoders, WhatIsNotImplementedIsNamed) {
  EXPECT_THROWS(changed_encoder("roberta", {{"position_embedding_type", "relative_key"}}), DataError,
                "config.json", "'position_embedding_type'");
  EXPECT_THROWS(changed_encoder("electra", {{"is_decoder", true}}), DataError, "'is_decoder'");
  EXPECT_THROWS(changed_encoder("distilbert", {{"n_heads", 5}}), DataError, "'dim' is 32", "'n_heads'");
  EXPECT_THROWS(changed_encoder("roberta", {{"pad_token_id", nullptr}}), DataError, "'pad_token_id' is null",
                "positions begin behind it");
  EXPECT_THROWS(changed_encoder("roberta", {{"pad_token_id", 25}}), DataError,
                "'max_position_embeddings' is 26", "which is 26");
  EXPECT_THROWS(changed_encoder("roberta", {{"model_type", "camembert"}}), DataError, "\"camembert\"",
                "'roberta', 'xlm-roberta'");
  EXPECT_THROWS(changed_encoder("modernbert", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
                DataError, "'rope_scaling'", "not implemented");
  EXPECT_THROWS(changed_encoder("modernbert_5", {{"rope_parameters", {{"rope_theta", 10.0}}}}), DataError,
                "'rope_parameters'", "'sliding_attention'");
  EXPECT_THROWS(changed_encoder("modernbert_5", {{"layer_types", {"full_attention"}}}), DataError,
                "'layer_types'", "3 layers");
  EXPECT_THROWS(changed_encoder("modernbert", {{"classifier_pooling", "max"}}), DataError,
                "'classifier_pooling'", "cls, mean");
  EXPECT_THROWS(EncoderConfig::of("llama"), UsageError, "'llama'", "'distilbert'");
  EncoderConfig config = golden_encoder("bert");
  config.embedding_size = 8;
  EXPECT_THROWS(EncoderModel{config}, UsageError, "a BERT has embeddings of its hidden_size");
}

}  // namespace
}  // namespace lockstep::models
