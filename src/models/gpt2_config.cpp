#include <nlohmann/json.hpp>

#include "attention.hpp"
#include "config_file.hpp"
#include "lockstep/models/gpt2.hpp"

namespace lockstep::models {

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
  file.number("eos_token_id", config.eos_token_id, 0);
  file.require("scale_attn_weights", true);
  file.require("scale_attn_by_inverse_layer_idx", false);
  file.require("add_cross_attention", false);
  file.require("tie_word_embeddings", true);
  return config;
}

std::string Gpt2Config::to_json() const {
  nlohmann::ordered_json json = {{"activation_function", activation_function},
                                 {"architectures", {"GPT2LMHeadModel"}},
                                 {"attn_pdrop", attn_pdrop},
                                 {"bos_token_id", bos_token_id},
                                 {"embd_pdrop", embd_pdrop},
                                 {"eos_token_id", eos_token_id},
                                 {"initializer_range", initializer_range},
                                 {"layer_norm_epsilon", layer_norm_epsilon},
                                 {"model_type", "gpt2"},
                                 {"n_embd", n_embd},
                                 {"n_head", n_head},
                                 {"n_inner", nullptr},
                                 {"n_layer", n_layer},
                                 {"n_positions", n_positions},
                                 {"resid_pdrop", resid_pdrop},
                                 {"vocab_size", vocab_size}};
  if (n_inner > 0) json["n_inner"] = n_inner;
  return json.dump(2) + "\n";
}

}  // namespace lockstep::models
