#include <nlohmann/json.hpp>

#include "lockstep/models/gpt2.hpp"
#include "models/attention.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json known_fields(const Gpt2Config& config) {
  nlohmann::ordered_json json = {{"activation_function", config.activation_function},
                                 {"attn_pdrop", config.attn_pdrop},
                                 {"bos_token_id", config.bos_token_id},
                                 {"embd_pdrop", config.embd_pdrop},
                                 {"eos_token_id", token_ids(config.eos_token_id)},
                                 {"initializer_range", config.initializer_range},
                                 {"layer_norm_epsilon", config.layer_norm_epsilon},
                                 {"model_type", "gpt2"},
                                 {"n_embd", config.n_embd},
                                 {"n_head", config.n_head},
                                 {"n_inner", nullptr},
                                 {"n_layer", config.n_layer},
                                 {"n_positions", config.n_positions},
                                 {"resid_pdrop", config.resid_pdrop},
                                 {"vocab_size", config.vocab_size}};
  if (config.n_inner > 0) json["n_inner"] = config.n_inner;
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  return json;
}

}  // namespace

Gpt2Config Gpt2Config::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("gpt2");
  Gpt2Config config;
  file.number("vocab_size", config.vocab_size);
  file.number("n_positions", config.n_positions);
  file.number("n_embd", config.n_embd);
  file.number("n_layer", config.n_layer);
  file.number("n_head", config.n_head);
  file.number("n_inner", config.n_inner);
  file.choice("activation_function", config.activation_function, kActivations);
  file.real("resid_pdrop", config.resid_pdrop, 1);
  file.real("embd_pdrop", config.embd_pdrop, 1);
  file.real("attn_pdrop", config.attn_pdrop, 1);
  file.real("layer_norm_epsilon", config.layer_norm_epsilon, 1);
  file.real("initializer_range", config.initializer_range, 10);
  file.number("bos_token_id", config.bos_token_id, 0);
  const auto generation = ConfigFile::of_generation(path);
  generation.number("bos_token_id", config.bos_token_id, 0);
  generation.tokens("eos_token_id", config.eos_token_id);
  generation.number("pad_token_id", config.pad_token_id, -1);
  // How some files say that there is none.
  if (config.pad_token_id == -1) config.pad_token_id.reset();
  file.require("scale_attn_weights", true);
  file.require("scale_attn_by_inverse_layer_idx", false);
  file.require("add_cross_attention", false);
  file.require("tie_word_embeddings", true);
  file.require_multiple("n_embd", config.n_embd, "n_head", config.n_head);
  config.origin = read_origin(path, known_fields(config));
  return config;
}

std::string Gpt2Config::to_json() const {
  return config_text(origin.get(), "GPT2LMHeadModel", known_fields(*this));
}

ModelConfig Gpt2Config::model_config() const {
  return {.model_type = "gpt2",
          .vocab_size = vocab_size,
          .max_position_embeddings = n_positions,
          .pad_token_id = pad_token_id,
          .bos_token_id = bos_token_id,
          .eos_token_id = eos_token_id};
}

}  // namespace lockstep::models
