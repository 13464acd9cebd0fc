#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/opt.hpp"
#include "lockstep/train/model_files.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::TemporaryFolder;

Json read_json(const fs::path& path) { return Json::parse(std::ifstream(path)); }
void write_json(const fs::path& path, const Json& json) { testing::write_bytes(path, json.dump(2)); }

TensorMap tensors_in(const fs::path& folder) { return load_file(folder / "model.safetensors").tensors; }
void write_tensors(const TensorMap& tensors, const fs::path& folder) {
  save_file(tensors, folder / "model.safetensors");
}

/// Sets fields of a folder's config.json.
void set(const fs::path& folder, const Json& fields) {
  Json config = read_json(folder / "config.json");
  config.update(fields);
  write_json(folder / "config.json", config);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto place = text.find(from);
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

BertConfig tiny_bert() {
  return {.vocab_size = 20,
          .hidden_size = 8,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 12,
          .max_position_embeddings = 10};
}

/// google-bert/bert-base-uncased in tiny: TensorFlow's names of the norms, the heads of the pretraining, and
/// a configuration with fields that Lockstep does not know.
BertForSequenceClassification write_bert(const fs::path& folder) {
  BertForSequenceClassification model(tiny_bert());
  fill(*model);
  model->eval();
  save_pretrained(model, folder);
  TensorMap published;
  for (auto& [name, tensor] : tensors_in(folder)) {
    if (name.starts_with("classifier.")) continue;
    published[replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                       "LayerNorm.beta")] = tensor;
  }
  published["cls.predictions.bias"] = at::zeros({20});
  published["cls.predictions.transform.dense.weight"] = at::zeros({8, 8});
  published["cls.predictions.transform.LayerNorm.gamma"] = at::ones({8});
  published["cls.predictions.transform.LayerNorm.beta"] = at::zeros({8});
  published["cls.seq_relationship.weight"] = at::zeros({2, 8});
  published["bert.embeddings.position_ids"] = at::arange(10).unsqueeze(0);
  write_tensors(published, folder);
  write_json(folder / "config.json", {{"architectures", {"BertForMaskedLM"}},
                                      {"attention_probs_dropout_prob", 0.1},
                                      {"gradient_checkpointing", false},
                                      {"hidden_act", "gelu"},
                                      {"hidden_dropout_prob", 0.1},
                                      {"hidden_size", 8},
                                      {"initializer_range", 0.02},
                                      {"intermediate_size", 12},
                                      {"layer_norm_eps", 1e-12},
                                      {"max_position_embeddings", 10},
                                      {"model_type", "bert"},
                                      {"num_attention_heads", 2},
                                      {"num_hidden_layers", 2},
                                      {"pad_token_id", 0},
                                      {"position_embedding_type", "absolute"},
                                      {"transformers_version", "4.6.0.dev0"},
                                      {"type_vocab_size", 2},
                                      {"use_cache", true},
                                      {"vocab_size", 20}});
  return model;
}

TEST(ModelFolders, ABertWithTensorFlowsNamesIsLoadedAndSavedWithThem) {
  const TemporaryFolder folder;
  const auto original = write_bert(folder.path());
  PretrainedReport report;
  auto model = AutoModelForSequenceClassification::from_pretrained(folder.path(), {.report = &report});
  EXPECT_EQ(report.initialized, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(report.unused.size(), 6U);
  const auto theirs = original->named_parameters();
  for (const auto& entry : model->named_parameters()) {
    if (!entry.key().starts_with("classifier.")) {
      EXPECT_TRUE(at::equal(entry.value(), theirs[entry.key()])) << entry.key();
    }
  }
  // As transformers, which writes the names again that it has read.
  save_pretrained(model, folder.path() / "again");
  const auto saved = tensors_in(folder.path() / "again");
  EXPECT_TRUE(saved.contains("bert.embeddings.LayerNorm.gamma"));
  EXPECT_FALSE(saved.contains("bert.embeddings.LayerNorm.weight"));
  EXPECT_TRUE(at::equal(saved.at("bert.encoder.layer.1.output.LayerNorm.beta"),
                        theirs["bert.encoder.layer.1.output.LayerNorm.bias"]));
  auto again =
      AutoModelForSequenceClassification::from_pretrained(folder.path() / "again", {.report = &report});
  EXPECT_TRUE(report.initialized.empty());
  model->eval();
  again->eval();
  EXPECT_TRUE(at::equal(model(ids(2, 5, 20)), again(ids(2, 5, 20))));
}

TEST(ModelFolders, BodiesAreLoadedWithAndWithoutTheirPrefix) {
  const TemporaryFolder folder;
  const auto original = write_bert(folder.path());
  const auto expect_same = [&] {
    const auto encoder = AutoModel::from_pretrained(folder.path());
    EXPECT_TRUE(at::equal(encoder->named_parameters()["embeddings.LayerNorm.weight"],
                          original->named_parameters()["bert.embeddings.LayerNorm.weight"]));
  };
  expect_same();
  TensorMap bare;
  for (auto& [name, tensor] : tensors_in(folder.path())) bare[replaced(name, "bert.", "")] = tensor;
  write_tensors(bare, folder.path());
  expect_same();
}

/// A model whose own names are such keeps them.
TEST(ModelFolders, OnlyOldNamesAreRenamed) {
  const TemporaryFolder folder;
  save_file({{"LayerNorm.gamma", at::full({2}, 5.0)}}, folder.path() / "model.safetensors");
  const at::Tensor own = at::zeros({2});
  load_pretrained(folder.path(), {{"LayerNorm.gamma", own}});
  EXPECT_TRUE(at::equal(own, at::full({2}, 5.0)));
  save_file({{"LayerNorm.gamma", at::ones({2})}, {"LayerNorm.weight", at::ones({2})}},
            folder.path() / "model.safetensors");
  EXPECT_THROWS(load_pretrained(folder.path(), {{"LayerNorm.weight", own}}), DataError,
                "'LayerNorm.gamma' is not part of the model");
}

/// Accelerator::load_model and checkpoints read models by this.
TEST(ModelFolders, OldNamesAreReadIntoAnyModuleThatHasTodays) {
  const TemporaryFolder folder;
  save_file({{"block.LayerNorm.gamma", at::full({2}, 5.0)}, {"block.LayerNorm.beta", at::full({2}, 7.0)}},
            folder.path() / "model.safetensors");
  const at::Tensor weight = at::zeros({2}), bias = at::zeros({2});
  read_model(folder.path(), {{"block.LayerNorm.weight", weight}, {"block.LayerNorm.bias", bias}});
  EXPECT_TRUE(at::equal(weight, at::full({2}, 5.0)));
  EXPECT_TRUE(at::equal(bias, at::full({2}, 7.0)));
}

/// How texts begin in a language is saved where Python's generate() looks for it.
TEST(ModelFolders, FirstTokensOfTextsAreSavedInBothConfigurations) {
  const TemporaryFolder folder;
  auto model = AutoModelForSeq2SeqLM::from_config(
      {.model_type = "m2m_100",
       .vocab_size = 30,
       .max_position_embeddings = 16,
       .pad_token_id = 1,
       .bos_token_id = 0,
       .eos_token_id = 2,
       .decoder_start_token_id = 2},
      {.hidden_size = 8, .num_hidden_layers = 1, .num_attention_heads = 2});
  save_pretrained(model, folder.path());
  write_json(folder.path() / "generation_config.json", {{"decoder_start_token_id", 2}, {"max_length", 200}});
  auto again = AutoModelForSeq2SeqLM::from_pretrained(folder.path());
  again->set_first_tokens(2, 17);
  again->eval();
  const at::Tensor texts = generate(again, ids(2, 5, 30), {}, {.max_new_tokens = 4});
  EXPECT_TRUE(texts.select(1, 0).eq(2).all().item<bool>());
  EXPECT_TRUE(texts.select(1, 1).eq(17).all().item<bool>());
  save_pretrained(again, folder.path() / "again");
  const Json generation = read_json(folder.path() / "again/generation_config.json");
  EXPECT_EQ(generation["forced_bos_token_id"], 17);
  EXPECT_EQ(generation["max_length"], 200);
  EXPECT_EQ(AutoModelForSeq2SeqLM::config_of(folder.path() / "again").forced_bos_token_id, 17);
}

TEST(ModelFolders, TheConfigurationIsKeptButForWhatChanged) {
  const TemporaryFolder folder;
  write_bert(folder.path());
  const Json before = read_json(folder.path() / "config.json");
  auto model = AutoModelForSequenceClassification::from_pretrained(folder.path());
  save_pretrained(model, folder.path() / "same");
  Json same = read_json(folder.path() / "same/config.json");
  EXPECT_EQ(same["architectures"], Json({"BertForSequenceClassification"}));
  same["architectures"] = before["architectures"];
  EXPECT_EQ(same, before);

  auto other = AutoModelForSequenceClassification::from_pretrained(folder.path(), {.num_labels = 3});
  other->set_id2label({"a", "b", "c"});
  save_pretrained(other, folder.path() / "other");
  Json changed = read_json(folder.path() / "other/config.json");
  EXPECT_EQ(changed["id2label"], Json({{"0", "a"}, {"1", "b"}, {"2", "c"}}));
  EXPECT_EQ(changed["label2id"], Json({{"a", 0}, {"b", 1}, {"c", 2}}));
  EXPECT_EQ(changed["transformers_version"], "4.6.0.dev0");
  EXPECT_EQ(changed["use_cache"], true);

  // What belonged to the classifier that is replaced goes with it.
  set(folder.path() / "other", {{"num_labels", 3}, {"problem_type", "multi_label_classification"}});
  auto fresh =
      AutoModelForSequenceClassification::from_pretrained(folder.path() / "other", {.num_labels = 2});
  save_pretrained(fresh, folder.path() / "fresh");
  changed = read_json(folder.path() / "fresh/config.json");
  EXPECT_EQ(changed["id2label"], Json({{"0", "LABEL_0"}, {"1", "LABEL_1"}}));
  EXPECT_FALSE(changed.contains("problem_type"));
  EXPECT_FALSE(changed.contains("num_labels"));
}

/// openai-community/gpt2 in tiny: no prefix, the masks of old versions, tasks in the configuration.
Gpt2LMHeadModel write_gpt2(const fs::path& folder) {
  Gpt2LMHeadModel model(
      Gpt2Config{.vocab_size = 30, .n_positions = 16, .n_embd = 8, .n_layer = 1, .n_head = 2});
  fill(*model);
  model->eval();
  save_pretrained(model, folder);
  TensorMap published;
  for (auto& [name, tensor] : tensors_in(folder))
    published[replaced(name, "transformer.", "")] = tensor.to(at::kHalf);
  published["h.0.attn.bias"] = at::ones({1, 1, 16, 16});
  published["h.0.attn.masked_bias"] = at::scalar_tensor(-1e4);
  write_tensors(published, folder);
  write_json(folder / "config.json",
             {{"activation_function", "gelu_new"},
              {"architectures", {"GPT2LMHeadModel"}},
              {"bos_token_id", 29},
              {"eos_token_id", 29},
              {"model_type", "gpt2"},
              {"n_ctx", 16},
              {"n_embd", 8},
              {"n_head", 2},
              {"n_layer", 1},
              {"n_positions", 16},
              {"summary_type", "cls_index"},
              {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}},
              {"torch_dtype", "float16"},
              {"vocab_size", 30}});
  write_json(folder / "generation_config.json", {{"_from_model_config", true},
                                                 {"bos_token_id", 29},
                                                 {"eos_token_id", {28, 29}},
                                                 {"no_repeat_ngram_size", 3}});
  return model;
}

TEST(ModelFolders, AGpt2KeepsItsGenerationSettingsAndTasks) {
  const TemporaryFolder folder;
  const auto original = write_gpt2(folder.path());
  auto model = AutoModelForCausalLM::from_pretrained(folder.path());
  EXPECT_EQ(model->named_parameters()["transformer.wte.weight"].scalar_type(), at::kFloat);
  EXPECT_EQ(model->model_config().eos_token_id, (TokenIds{28, 29}));
  save_pretrained(model, folder.path() / "again");
  EXPECT_EQ(read_json(folder.path() / "again/generation_config.json"),
            read_json(folder.path() / "generation_config.json"));
  Json config = read_json(folder.path() / "again/config.json");
  // Python loads the weights in that dtype.
  EXPECT_EQ(config["torch_dtype"], "float32");
  config["torch_dtype"] = "float16";
  EXPECT_EQ(config, read_json(folder.path() / "config.json"));
}

TEST(ModelFolders, ATokenThatChangedIsWrittenToBothConfigurations) {
  const TemporaryFolder folder;
  write_gpt2(folder.path());
  auto config = Gpt2Config::from_file(folder.path());
  config.eos_token_id = 5;
  config.pad_token_id = 6;
  Gpt2LMHeadModel model(config);
  save_pretrained(model, folder.path() / "again");
  for (const char* name : {"again/config.json", "again/generation_config.json"}) {
    const Json json = read_json(folder.path() / name);
    EXPECT_EQ(json["eos_token_id"], 5) << name;
    EXPECT_EQ(json["pad_token_id"], 6) << name;
    EXPECT_EQ(json["bos_token_id"], 29) << name;
  }
  EXPECT_EQ(read_json(folder.path() / "again/generation_config.json")["no_repeat_ngram_size"], 3);
  // Also to what only config.json said.
  config.eos_token_id = 29;
  save_pretrained(Gpt2LMHeadModel(config), folder.path() / "third");
  EXPECT_EQ(Gpt2Config::from_file(folder.path() / "third").eos_token_id, TokenIds{29});
}

TEST(ModelFolders, SettingsOfSentenceTransformersAreCarried) {
  const TemporaryFolder folder;
  write_bert(folder.path());
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder.path() / name).parent_path());
    testing::write_bytes(folder.path() / name, text);
  };
  write("modules.json",
        R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "../escape", "type": "sentence_transformers.models.Dense"}])");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  write("sentence_bert_config.json", R"({"max_seq_length": 256})");
  write("preprocessor_config.json", "{}");
  write("README.md", "a card");
  write("pytorch_model.bin", "weights before the training");
  const auto model = AutoModel::from_pretrained(folder.path());
  const TemporaryFolder out;
  save_pretrained(model, out.path() / "a");
  const auto text_of = [&](const std::string& name) {
    std::ifstream file(out.path() / "a" / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(text_of("1_Pooling/config.json"), R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(text_of("sentence_bert_config.json"), R"({"max_seq_length": 256})");
  EXPECT_EQ(text_of("preprocessor_config.json"), "{}");
  EXPECT_TRUE(fs::exists(out.path() / "a/modules.json"));
  EXPECT_FALSE(fs::exists(out.path() / "a/pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(out.path() / "escape"));
}

TEST(ModelFolders, AFieldThatDoesNotFitTheWeightsIsNamed) {
  const TemporaryFolder folder;
  write_bert(folder.path());
  const auto load = [&] { return AutoModel::from_pretrained(folder.path()); };
  const auto expect_named = [&](const char* field, std::int64_t wrong, std::int64_t right,
                                const std::string& part) {
    set(folder.path(), {{field, wrong}});
    EXPECT_THROWS(load(), DataError, "model.safetensors", part, "'" + std::string(field) + "'",
                  "of config.json");
    set(folder.path(), {{field, right}});
  };
  expect_named("vocab_size", 21, 20,
               "'embeddings.word_embeddings.weight' is Float [20, 8], expected Float [21, 8]");
  expect_named("max_position_embeddings", 9, 10, "position_embeddings");
  expect_named("type_vocab_size", 3, 2, "token_type_embeddings");
  expect_named("intermediate_size", 16, 12, "intermediate.dense");
  expect_named("hidden_size", 10, 8, "by 'hidden_size' of config.json");
  expect_named("num_hidden_layers", 1, 2, "encoder.layer.1.");
  expect_named("num_hidden_layers", 3, 2, "encoder.layer.2.");
  set(folder.path(), {{"num_attention_heads", 3}});
  EXPECT_THROWS(load(), DataError, "config.json", "'hidden_size' is 8", "'num_attention_heads', which is 3");
  const TemporaryFolder other;
  write_gpt2(other.path());
  set(other.path(), {{"n_layer", 2}});
  EXPECT_THROWS(AutoModelForCausalLM::from_pretrained(other.path()), DataError, "h.1.",
                "'n_layer' of config.json");
}

TEST(ModelFolders, AModelTypeThatIsNotKnownListsThoseThatAre) {
  const TemporaryFolder folder;
  write_gpt2(folder.path());
  set(folder.path(), {{"model_type", "falcon"}});
  EXPECT_THROWS(AutoConfig::from_pretrained(folder.path()), DataError, "config.json", "\"falcon\"", "bert",
                "gpt2", "llama", "m2m_100", "marian", "mbart", "opt");
  set(folder.path(), {{"model_type", nullptr}});
  EXPECT_THROWS(AutoModelForCausalLM::from_pretrained(folder.path()), DataError, "'model_type' is missing",
                "gpt2");
  set(folder.path(), {{"model_type", "gpt2"}});
  EXPECT_THROWS(AutoModelForSeq2SeqLM::from_pretrained(folder.path()), DataError, "'model_type' is \"gpt2\"",
                "no encoder-decoder", "'bart', 'm2m_100', 'marian', 'mbart'");
  EXPECT_THROWS(AutoModelForSequenceClassification::config_of(folder.path()), DataError, "\"gpt2\"", "bert");
  EXPECT_THROWS(AutoModelForCausalLM::from_config({.model_type = "bart"}, {}), UsageError, "'bart'", "'gpt2'",
                "'llama'", "'opt'");
}

/// One door, many families: what a program needs is the same.
TEST(ModelFolders, EveryFamilyLoadsThroughItsAutoClass) {
  std::vector<std::string> causal = DecoderConfig::model_types();
  causal.insert(causal.end(), {"gpt2", "opt"});
  for (const auto& type : causal) {
    const TemporaryFolder folder;
    auto model = AutoModelForCausalLM::from_config(
        {.model_type = type,
         .vocab_size = 30,
         .max_position_embeddings = 16,
         .bos_token_id = 28,
         .eos_token_id = 29},
        {.hidden_size = 8, .num_hidden_layers = 1, .num_attention_heads = 2});
    model->eval();
    save_pretrained(model, folder.path());
    auto again = AutoModelForCausalLM::from_pretrained(folder.path());
    again->eval();
    EXPECT_TRUE(at::equal(again(ids(2, 5, 30)), model(ids(2, 5, 30)))) << type;
    const auto config = AutoModelForCausalLM::config_of(folder.path());
    EXPECT_EQ(config.model_type, type);
    EXPECT_EQ(config.vocab_size, 30);
    EXPECT_EQ(config.max_position_embeddings, 16);
    EXPECT_EQ(config.bos_token_id, 28);
    EXPECT_EQ(config.eos_token_id, TokenIds{29});
    EXPECT_EQ(AutoModelForCausalLM::from_config(folder.path())->parameters().size(),
              model->parameters().size());
  }
  for (const char* type : {"bart", "mbart", "m2m_100", "marian"}) {
    const TemporaryFolder folder;
    auto model = AutoModelForSeq2SeqLM::from_config(
        {.model_type = type,
         .vocab_size = 30,
         .max_position_embeddings = 16,
         .pad_token_id = 1,
         .bos_token_id = 0,
         .eos_token_id = 2,
         .decoder_start_token_id = 2},
        {.hidden_size = 8, .num_hidden_layers = 1, .num_attention_heads = 2});
    model->eval();
    save_pretrained(model, folder.path());
    auto again = AutoModelForSeq2SeqLM::from_pretrained(folder.path());
    again->eval();
    const at::Tensor tokens = ids(2, 5, 30);
    EXPECT_TRUE(at::equal(again(tokens, at::Tensor(), tokens), model(tokens, at::Tensor(), tokens))) << type;
    EXPECT_EQ(again->model_config().model_type, type);
  }
}

/// facebook/opt-125m's file has no "model.", facebook/nllb-200's each name of the shared embedding.
TEST(ModelFolders, OptsAndNllbsPublishedNamesAreRead) {
  const TemporaryFolder folder;
  OptForCausalLM opt(OptConfig{.vocab_size = 30,
                               .hidden_size = 8,
                               .num_hidden_layers = 1,
                               .ffn_dim = 12,
                               .max_position_embeddings = 16,
                               .num_attention_heads = 2});
  opt->eval();
  save_pretrained(opt, folder.path());
  TensorMap published;
  for (auto& [name, tensor] : tensors_in(folder.path())) published[replaced(name, "model.", "")] = tensor;
  write_tensors(published, folder.path());
  auto opt_again = AutoModelForCausalLM::from_pretrained(folder.path());
  opt_again->eval();
  EXPECT_TRUE(at::equal(opt_again(ids(2, 5, 30)), opt(ids(2, 5, 30))));

  BartConfig config = BartConfig::of("m2m_100");
  config.vocab_size = 30;
  config.d_model = 8;
  config.encoder_layers = config.decoder_layers = 1;
  config.encoder_attention_heads = config.decoder_attention_heads = 2;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 12;
  BartForConditionalGeneration nllb(config);
  nllb->eval();
  const TemporaryFolder other;
  save_pretrained(nllb, other.path());
  published = tensors_in(other.path());
  const at::Tensor words = published.at("model.shared.weight");
  for (const char* name :
       {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"})
    published[name] = words.clone();
  published["model.encoder.embed_positions.weights"] = at::zeros({1026, 8});
  write_tensors(published, other.path());
  auto nllb_again = AutoModelForSeq2SeqLM::from_pretrained(other.path());
  nllb_again->eval();
  const at::Tensor tokens = ids(2, 5, 30);
  EXPECT_TRUE(at::equal(nllb_again(tokens, at::Tensor(), tokens), nllb(tokens, at::Tensor(), tokens)));
}

}  // namespace
}  // namespace lockstep::models
