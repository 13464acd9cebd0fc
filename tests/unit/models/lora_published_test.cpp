// Adapters as PEFT publishes them that are more than low-rank matrices.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/parallel/unit.hpp"
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

/// PEFT compares the ends of names: of DistilBERT, both new layers are trained and saved.
TEST(PublishedAdapters, TrainAllLayersOfANewClassifier) {
  EncoderConfig config = EncoderConfig::of("distilbert");
  config.vocab_size = 37;
  config.hidden_size = 12;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.intermediate_size = 20;
  config.max_position_embeddings = 16;
  EncoderForSequenceClassification model(config);
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

}  // namespace
}  // namespace lockstep::models
