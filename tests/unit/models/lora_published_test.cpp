// Adapters as PEFT publishes them that are more than low-rank matrices.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {
namespace {

DecoderForCausalLM decoder_with_weights() {
  DecoderForCausalLM model(testing::decoder_config("llama"));
  fill(*model);
  return model;
}

/// Embedding and head beside the adapter: save_embedding_layers, or another vocabulary (huggingface/peft
/// 1457).
TEST(PublishedAdapters, MayRepeatWeightsOfTheModelAndHaveNoOthers) {
  auto model = decoder_with_weights();
  add_lora(model, {.r = 2, .target_modules = {"q_proj"}, .init_lora_weights = LoraInit::both_random});
  const testing::TemporaryFolder folder;
  save_adapter(model, folder.path());
  const auto file = folder.path() / kAdapterFileName;
  TensorMap tensors = load_file(file).tensors;
  const at::Tensor words = decoder_with_weights()->head().weight.detach().clone();
  const auto write = [&](const at::Tensor& table) {
    tensors["base_model.model.model.embed_tokens.weight"] =
        decoder_with_weights()->named_parameters()["model.embed_tokens.weight"].detach();
    tensors["base_model.model.lm_head.weight"] = table;
    save_file(tensors, file);
  };
  write(words);
  auto same = decoder_with_weights();
  load_adapter(same, folder.path());
  const at::Tensor tokens = ids(2, 8, 37);
  EXPECT_TRUE(at::equal(same(tokens), model(tokens)));
  // Beside a base of another dtype.
  write(words.to(at::kBFloat16));
  EXPECT_NO_THROW(load_adapter(decoder_with_weights(), folder.path()));
  auto other = decoder_with_weights();
  write(words + 1);
  EXPECT_THROWS(load_adapter(other, folder.path()), DataError, "lm_head.weight", "merge_and_unload");
  write(at::zeros({words.size(0) + 3, words.size(1)}));
  EXPECT_THROWS(load_adapter(other, folder.path()), DataError, "[40, 12]", "[37, 12]");
  EXPECT_EQ(lora_of(*other), nullptr);
  tensors["base_model.model.nothing.weight"] = words;
  write(words);
  EXPECT_THROWS(load_adapter(other, folder.path()), DataError, "nothing.weight", "not part of the model");
}

DecoderForCausalLM adapted_with(LoraConfig config) {
  auto model = decoder_with_weights();
  config.r = 2;
  config.target_modules = {"q_proj"};
  add_lora(model, std::move(config));
  return model;
}

/// With another lora_alpha, the same matrices are another model: in checkpoints of the adapter, in whole
/// ones, and in saved models.
TEST(SavedAdapters, HaveTheMeaningOfTheProgramsOwn) {
  const testing::TemporaryFolder folder;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  {
    auto adapted = adapted_with({.lora_alpha = 4});
    auto model = accelerator.prepare(adapted);
    accelerator.save_state(folder / "whole", {}, {.trained_only = false});
    accelerator.save_state(folder / "part");
    accelerator.save_model(model, folder / "model");
    for (const char* saved : {"whole", "part", "model"}) {
      EXPECT_TRUE(std::filesystem::exists(folder / saved / kAdapterConfigFileName)) << saved;
      EXPECT_EQ(std::filesystem::exists(folder / saved / "model.safetensors"), saved == std::string("whole"));
    }
    for (const char* saved : {"whole", "part"}) EXPECT_NO_THROW(accelerator.load_state(folder / saved));
    for (const char* saved : {"whole", "whole/model.safetensors", "model"})
      EXPECT_NO_THROW(accelerator.load_model(model, folder / saved));
    accelerator.free_memory();
  }
  for (const auto& [config, field] : std::vector<std::pair<LoraConfig, std::string>>{
           {{.lora_alpha = 8}, "'lora_alpha': 4"},
           {{.lora_alpha = 4, .alpha_pattern = {{"q_proj", 2}}}, "'alpha_pattern': {}"},
           {{.lora_alpha = 4, .use_rslora = true}, "'use_rslora': false"}}) {
    auto adapted = adapted_with(config);
    auto model = accelerator.prepare(adapted);
    for (const char* saved : {"whole", "part"})
      EXPECT_THROWS(accelerator.load_state(folder / saved), DataError, saved, field, "something else");
    for (const char* saved : {"whole", "whole/model.safetensors", "model", "model/adapter_model.safetensors"})
      EXPECT_THROWS(accelerator.load_model(model, folder / saved), DataError, field, "something else");
    accelerator.free_memory();
  }
  auto adapted = adapted_with({.lora_alpha = 4});
  auto model = accelerator.prepare(adapted);
  // As PEFT wrote them before it had patterns.
  testing::write_bytes(folder / "model/adapter_config.json", R"({"r": 2, "lora_alpha": 4.0})");
  EXPECT_NO_THROW(accelerator.load_model(model, folder / "model"));
  testing::write_bytes(folder / "model/adapter_config.json", R"({"r": 2, )");
  EXPECT_THROWS(accelerator.load_model(model, folder / "model"), DataError, "adapter_config.json", "JSON");
}

/// Checkpointed layers whose inputs need no gradient (huggingface/peft 1142): each matrix is trained all the
/// same.
TEST(AdaptersOfCheckpointedLayers, HaveTheGradientsOfOthers) {
  const at::Tensor tokens = ids(2, 8, 37);
  const auto gradients = [&](bool is_checkpointed) {
    torch::manual_seed(2);
    auto model = decoder_with_weights();
    add_lora(model, {.r = 2, .target_modules = "all-linear", .init_lora_weights = LoraInit::both_random});
    set_activation_checkpointing(model, is_checkpointed);
    causal_lm_loss(model(tokens), tokens).backward();
    std::vector<at::Tensor> all;
    for (const auto& entry : adapter_state(model)) {
      EXPECT_GT(entry.tensor.grad().abs().sum().item<double>(), 0) << entry.name;
      all.push_back(entry.tensor.grad());
    }
    return all;
  };
  const auto plain = gradients(false), recomputed = gradients(true);
  ASSERT_EQ(plain.size(), 2U * 2U * 7U);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
}

EncoderForSequenceClassification distilbert_classifier() {
  EncoderConfig config = EncoderConfig::of("distilbert");
  config.vocab_size = 37;
  config.hidden_size = 12;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.intermediate_size = 20;
  config.max_position_embeddings = 16;
  return EncoderForSequenceClassification(config);
}

/// PEFT compares the ends of names: of DistilBERT, both new layers are trained and saved.
TEST(PublishedAdapters, TrainAllLayersOfANewClassifier) {
  auto model = distilbert_classifier();
  add_lora(model, {.r = 2, .target_modules = {"q_lin"}});
  std::set<std::string> saved;
  for (const auto& entry : adapter_state(*model)) saved.insert(entry.name);
  for (const char* layer : {"pre_classifier", "classifier"}) {
    for (const char* part : {".weight", ".bias"}) {
      EXPECT_TRUE(model->named_parameters()[std::string(layer) + part].requires_grad()) << layer << part;
      EXPECT_TRUE(saved.contains(kAdapterPrefix + std::string(layer) + part)) << layer << part;
    }
  }
  EXPECT_EQ(saved.size(), 4U + 4U);
}

/// A layer that is trained whole has no adapter beside; PEFT stops with a TypeError.
TEST(PublishedAdapters, GiveNoAdapterToLayersThatAreTrainedWhole) {
  auto model = distilbert_classifier();
  EXPECT_THROWS(add_lora(model, {.r = 2, .target_modules = {"q_lin", "pre_classifier"}}), UsageError,
                "'pre_classifier'", "modules_to_save", "exclude_modules");
  EXPECT_EQ(lora_of(model), nullptr);
  const auto config = add_lora(model, {.r = 2, .target_modules = "all-linear"});
  EXPECT_EQ(config->target_modules.names().size(), 2U * 6U);
  for (const auto& entry : adapter_state(*model)) {
    const bool is_new = entry.name.find("classifier") != std::string::npos;
    EXPECT_EQ(entry.name.find("lora_") == std::string::npos, is_new) << entry.name;
  }
}

}  // namespace
}  // namespace lockstep::models
