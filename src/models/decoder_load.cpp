#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/models/decoder.hpp"
#include "models/load_weights.hpp"
#include "train/model_content.hpp"

namespace lockstep::models {
namespace {

/// A file may have the weights of a tied head as well. If they are others, the configuration is wrong.
void check_tied_head(const DecoderForCausalLM& model, const std::filesystem::path& folder,
                     const std::vector<std::string>& unused) {
  if (std::find(unused.begin(), unused.end(), "lm_head.weight") == unused.end()) return;
  const auto file = model_file_of(folder);
  const at::Tensor head = open_model_file(file).get_tensor("lm_head.weight");
  const at::Tensor words = model->named_parameters()["model.embed_tokens.weight"];
  if (head.sizes() == words.sizes() && at::equal(head.to(words.scalar_type()), words.detach().cpu())) return;
  throw DataError(
      fmt::format("{}: 'lm_head.weight' is not the embedding, but the field 'tie_word_embeddings' of {} is "
                  "true (or missing): "
                  "set it to false to have a head of its own",
                  file.string(), (folder / kConfigFileName).string()));
}

}  // namespace

DecoderForCausalLM load_decoder(const std::filesystem::path& folder, PretrainedReport* report) {
  DecoderForCausalLM model(DecoderConfig::from_file(folder));
  const auto& config = model->config();
  PretrainedNames names = {
      .base_prefix = "model.",
      .other_heads = {"score.", "classifier.", "qa_outputs."},
      .constants = {"rotary_emb.inv_freq"},
      .sizes = {{"embed_tokens.", "weight", {"vocab_size", "hidden_size"}},
                {"lm_head.", "weight", {"vocab_size", "hidden_size"}},
                {"layers.", ".mlp.down_proj.weight", {"hidden_size", "intermediate_size"}},
                {"layers.", "_proj.weight", {"", "hidden_size"}},
                {"", "layernorm.weight", {"hidden_size"}}},
      .layers = {{"layers.", "num_hidden_layers"}}};
  if (config.tie_word_embeddings) names.other_heads.emplace_back("lm_head.");
  PretrainedReport found;
  load_weights(*model, folder, names, &found);
  check_tied_head(model, folder, found.unused);
  if (report) *report = std::move(found);
  return model;
}

}  // namespace lockstep::models
