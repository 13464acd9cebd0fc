#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/models/bart.hpp"
#include "models/attention.hpp"
#include "models/bart_form.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

template <class Value>
nlohmann::ordered_json value_or_null(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json known_fields(const BartConfig& config) {
  nlohmann::ordered_json json = {{"activation_dropout", config.activation_dropout},
                                 {"activation_function", config.activation_function},
                                 {"attention_dropout", config.attention_dropout},
                                 {"bos_token_id", value_or_null(config.bos_token_id)},
                                 {"d_model", config.d_model},
                                 {"decoder_attention_heads", config.decoder_attention_heads},
                                 {"decoder_ffn_dim", config.decoder_ffn_dim},
                                 {"decoder_layerdrop", config.decoder_layerdrop},
                                 {"decoder_layers", config.decoder_layers},
                                 {"decoder_start_token_id", value_or_null(config.decoder_start_token_id)},
                                 {"dropout", config.dropout},
                                 {"encoder_attention_heads", config.encoder_attention_heads},
                                 {"encoder_ffn_dim", config.encoder_ffn_dim},
                                 {"encoder_layerdrop", config.encoder_layerdrop},
                                 {"encoder_layers", config.encoder_layers},
                                 {"eos_token_id", token_ids(config.eos_token_id)},
                                 {"forced_bos_token_id", value_or_null(config.forced_bos_token_id)},
                                 {"forced_eos_token_id", value_or_null(config.forced_eos_token_id)},
                                 {"init_std", config.init_std},
                                 {"is_encoder_decoder", true},
                                 {"max_position_embeddings", config.max_position_embeddings},
                                 {"model_type", config.model_type},
                                 {"pad_token_id", config.pad_token_id},
                                 {"scale_embedding", config.scale_embedding},
                                 {"vocab_size", config.vocab_size}};
  if (config.share_encoder_decoder_embeddings) return json;
  json["share_encoder_decoder_embeddings"] = false;
  json["decoder_vocab_size"] = config.decoder_vocab_size;
  return json;
}

void read_sizes(const ConfigFile& file, BartConfig& config) {
  file.number("vocab_size", config.vocab_size);
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("d_model", config.d_model);
  file.number("encoder_layers", config.encoder_layers);
  file.number("encoder_attention_heads", config.encoder_attention_heads);
  file.number("encoder_ffn_dim", config.encoder_ffn_dim);
  file.number("decoder_layers", config.decoder_layers);
  file.number("decoder_attention_heads", config.decoder_attention_heads);
  file.number("decoder_ffn_dim", config.decoder_ffn_dim);
  for (const auto& [field, heads] : {std::pair("encoder_attention_heads", config.encoder_attention_heads),
                                     std::pair("decoder_attention_heads", config.decoder_attention_heads)})
    file.require_multiple("d_model", config.d_model, field, heads);
  if (config.model_type != "marian") return;
  file.flag("share_encoder_decoder_embeddings", config.share_encoder_decoder_embeddings);
  config.decoder_vocab_size = config.vocab_size;
  file.number("decoder_vocab_size", config.decoder_vocab_size);
}

}  // namespace

BartConfig BartConfig::of(const std::string& model_type) {
  BartConfig config;
  config.model_type = form_of(model_type).model_type;
  if (model_type == "mbart") {
    config.decoder_start_token_id.reset();
    config.forced_eos_token_id = 2;
  } else if (model_type == "m2m_100") {
    config.vocab_size = 128112;
    config.activation_function = "relu";
    config.attention_dropout = 0.1;
    config.encoder_layerdrop = config.decoder_layerdrop = 0.05;
    config.scale_embedding = true;
  } else if (model_type == "marian") {
    config.vocab_size = config.decoder_vocab_size = 58101;
    config.decoder_start_token_id = config.pad_token_id = 58100;
    config.bos_token_id.reset();
    config.eos_token_id = 0;
    config.forced_eos_token_id = 0;
  }
  return config;
}

BartConfig BartConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  BartConfig config =
      of(file.has("model_type") ? file.model_type({"bart", "m2m_100", "marian", "mbart"}) : "bart");
  read_sizes(file, config);
  file.choice("activation_function", config.activation_function, kActivations);
  file.real("dropout", config.dropout, 1);
  file.real("attention_dropout", config.attention_dropout, 1);
  file.real("activation_dropout", config.activation_dropout, 1);
  file.real("encoder_layerdrop", config.encoder_layerdrop, 1);
  file.real("decoder_layerdrop", config.decoder_layerdrop, 1);
  file.real("init_std", config.init_std, 10);
  file.flag("scale_embedding", config.scale_embedding);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.number("bos_token_id", config.bos_token_id, 0);
  file.number("decoder_start_token_id", config.decoder_start_token_id, 0);
  file.require("tie_word_embeddings", true);
  // A token that neither file names is forced nowhere, whatever the default of a new model.
  config.forced_bos_token_id.reset();
  config.forced_eos_token_id.reset();
  const auto generation = ConfigFile::of_generation(path);
  generation.tokens("eos_token_id", config.eos_token_id);
  generation.number("decoder_start_token_id", config.decoder_start_token_id, 0);
  generation.number("forced_bos_token_id", config.forced_bos_token_id, 0);
  generation.number("forced_eos_token_id", config.forced_eos_token_id, 0);
  // How the oldest files say it.
  bool forces_bos = false;
  generation.flag("force_bos_token_to_be_generated", forces_bos);
  if (forces_bos) config.forced_bos_token_id = config.bos_token_id;
  config.origin = read_origin(path, known_fields(config));
  return config;
}

std::string BartConfig::to_json() const {
  require_said(model_type, {{"share_encoder_decoder_embeddings",
                             share_encoder_decoder_embeddings || model_type == "marian"}});
  return config_text(origin.get(), form_of(model_type).architecture, known_fields(*this));
}

ModelConfig BartConfig::model_config() const {
  return {.model_type = model_type,
          .vocab_size = vocab_size,
          .max_position_embeddings = max_position_embeddings,
          .pad_token_id = pad_token_id,
          .bos_token_id = bos_token_id,
          .eos_token_id = eos_token_id,
          .decoder_start_token_id = decoder_start_token_id,
          .forced_bos_token_id = forced_bos_token_id,
          .forced_eos_token_id = forced_eos_token_id};
}

}  // namespace lockstep::models
