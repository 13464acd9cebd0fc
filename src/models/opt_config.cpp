#include <nlohmann/json.hpp>

#include "lockstep/models/opt.hpp"
#include "models/attention.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json known_fields(const OptConfig& config) {
  return {{"_remove_final_layer_norm", config.remove_final_layer_norm},
          {"activation_function", config.activation_function},
          {"attention_dropout", config.attention_dropout},
          {"bos_token_id", config.bos_token_id},
          {"do_layer_norm_before", config.do_layer_norm_before},
          {"dropout", config.dropout},
          {"enable_bias", config.enable_bias},
          {"eos_token_id", token_ids(config.eos_token_id)},
          {"ffn_dim", config.ffn_dim},
          {"hidden_size", config.hidden_size},
          {"init_std", config.init_std},
          {"layer_norm_elementwise_affine", config.layer_norm_elementwise_affine},
          {"layerdrop", config.layerdrop},
          {"max_position_embeddings", config.max_position_embeddings},
          {"model_type", "opt"},
          {"num_attention_heads", config.num_attention_heads},
          {"num_hidden_layers", config.num_hidden_layers},
          {"pad_token_id", config.pad_token_id},
          {"vocab_size", config.vocab_size},
          {"word_embed_proj_dim",
           config.word_embed_proj_dim > 0 ? config.word_embed_proj_dim : config.hidden_size}};
}

}  // namespace

OptConfig OptConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("opt");
  OptConfig config;
  file.number("vocab_size", config.vocab_size);
  file.number("hidden_size", config.hidden_size);
  file.number("num_hidden_layers", config.num_hidden_layers);
  file.number("ffn_dim", config.ffn_dim);
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("num_attention_heads", config.num_attention_heads);
  file.require_multiple("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  file.number("word_embed_proj_dim", config.word_embed_proj_dim);
  file.choice("activation_function", config.activation_function, kActivations);
  file.real("dropout", config.dropout, 1);
  file.real("attention_dropout", config.attention_dropout, 1);
  file.real("layerdrop", config.layerdrop, 1);
  file.real("init_std", config.init_std, 10);
  file.flag("do_layer_norm_before", config.do_layer_norm_before);
  file.flag("_remove_final_layer_norm", config.remove_final_layer_norm);
  file.flag("enable_bias", config.enable_bias);
  file.flag("layer_norm_elementwise_affine", config.layer_norm_elementwise_affine);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.number("bos_token_id", config.bos_token_id, 0);
  file.require("tie_word_embeddings", true);
  const auto generation = ConfigFile::of_generation(path);
  generation.number("bos_token_id", config.bos_token_id, 0);
  generation.tokens("eos_token_id", config.eos_token_id);
  config.origin = read_origin(path, known_fields(config));
  return config;
}

std::string OptConfig::to_json() const {
  return config_text(origin.get(), "OPTForCausalLM", known_fields(*this));
}

ModelConfig OptConfig::model_config() const {
  return {.model_type = "opt",
          .vocab_size = vocab_size,
          .max_position_embeddings = max_position_embeddings,
          .pad_token_id = pad_token_id,
          .bos_token_id = bos_token_id,
          .eos_token_id = eos_token_id};
}

}  // namespace lockstep::models
