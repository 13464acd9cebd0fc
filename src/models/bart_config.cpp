#include <nlohmann/json.hpp>

#include "attention.hpp"
#include "config_file.hpp"
#include "lockstep/models/bart.hpp"

namespace lockstep::models {

BartConfig BartConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("bart");
  BartConfig config;
  file.number("vocab_size", config.vocab_size);
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("d_model", config.d_model);
  file.number("encoder_layers", config.encoder_layers);
  file.number("encoder_attention_heads", config.encoder_attention_heads);
  file.number("encoder_ffn_dim", config.encoder_ffn_dim);
  file.number("decoder_layers", config.decoder_layers);
  file.number("decoder_attention_heads", config.decoder_attention_heads);
  file.number("decoder_ffn_dim", config.decoder_ffn_dim);
  file.choice("activation_function", config.activation_function, kActivations);
  file.real("dropout", config.dropout, 1);
  file.real("attention_dropout", config.attention_dropout, 1);
  file.real("activation_dropout", config.activation_dropout, 1);
  file.real("init_std", config.init_std, 10);
  file.flag("scale_embedding", config.scale_embedding);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.number("bos_token_id", config.bos_token_id, 0);
  file.number("eos_token_id", config.eos_token_id, 0);
  file.number("decoder_start_token_id", config.decoder_start_token_id, 0);
  file.require("tie_word_embeddings", true);
  return config;
}

std::string BartConfig::to_json() const {
  const nlohmann::ordered_json json = {{"activation_dropout", activation_dropout},
                                       {"activation_function", activation_function},
                                       {"architectures", {"BartForConditionalGeneration"}},
                                       {"attention_dropout", attention_dropout},
                                       {"bos_token_id", bos_token_id},
                                       {"d_model", d_model},
                                       {"decoder_attention_heads", decoder_attention_heads},
                                       {"decoder_ffn_dim", decoder_ffn_dim},
                                       {"decoder_layers", decoder_layers},
                                       {"decoder_start_token_id", decoder_start_token_id},
                                       {"dropout", dropout},
                                       {"encoder_attention_heads", encoder_attention_heads},
                                       {"encoder_ffn_dim", encoder_ffn_dim},
                                       {"encoder_layers", encoder_layers},
                                       {"eos_token_id", eos_token_id},
                                       {"forced_eos_token_id", nullptr},
                                       {"init_std", init_std},
                                       {"is_encoder_decoder", true},
                                       {"max_position_embeddings", max_position_embeddings},
                                       {"model_type", "bart"},
                                       {"pad_token_id", pad_token_id},
                                       {"scale_embedding", scale_embedding},
                                       {"vocab_size", vocab_size}};
  return json.dump(2) + "\n";
}

}  // namespace lockstep::models
