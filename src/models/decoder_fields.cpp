#include "models/decoder_fields.hpp"

#include <algorithm>
#include <cmath>

#include "models/config_file.hpp"
#include "models/decoder_form.hpp"

namespace lockstep::models {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json cap(double value) { return value > 0 ? Json(value) : Json(); }

Json scaling_fields(const RopeScaling& scaling) {
  Json json = {{"rope_type", scaling.rope_type}};
  if (scaling.factor) json["factor"] = *scaling.factor;
  if (scaling.original_max_position_embeddings > 0)
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  if (scaling.attention_factor) json["attention_factor"] = *scaling.attention_factor;
  if (scaling.rope_type == "yarn") {
    json.update(
        {{"beta_fast", scaling.beta_fast}, {"beta_slow", scaling.beta_slow}, {"truncate", scaling.truncate}});
    if (scaling.mscale) json["mscale"] = *scaling.mscale;
    if (scaling.mscale_all_dim) json["mscale_all_dim"] = *scaling.mscale_all_dim;
  } else if (scaling.rope_type == "llama3") {
    json.update(
        {{"low_freq_factor", scaling.low_freq_factor}, {"high_freq_factor", scaling.high_freq_factor}});
  } else if (scaling.rope_type == "longrope") {
    json.update({{"short_factor", scaling.short_factor}, {"long_factor", scaling.long_factor}});
  }
  return json;
}

Json parameters_of(const RopeConfig& rope, const DecoderForm& form) {
  Json json = scaling_fields(rope.scaling);
  json["rope_theta"] = rope.theta;
  if (form.has_partial_rope) json["partial_rotary_factor"] = rope.partial_rotary_factor;
  return json;
}

void add_ropes(const DecoderConfig& config, const DecoderForm& form, Json& json) {
  const RopeConfig& rope = config.ropes.front();
  if (config.has_rope_parameters) {
    json["rope_parameters"] = form.two_ropes
                                  ? Json({{kFullAttention, parameters_of(rope, form)},
                                          {kSlidingAttention, parameters_of(config.ropes.at(1), form)}})
                                  : parameters_of(rope, form);
  } else {
    json["rope_theta"] = rope.theta;
    if (form.two_ropes) json["rope_local_base_freq"] = config.ropes.at(1).theta;
    if (form.has_partial_rope) json["partial_rotary_factor"] = rope.partial_rotary_factor;
    json["rope_scaling"] = rope.scaling.rope_type == "default" ? Json() : scaling_fields(rope.scaling);
  }
  if (form.has_partial_rope && rope.scaling.original_max_position_embeddings > 0)
    json["original_max_position_embeddings"] = rope.scaling.original_max_position_embeddings;
}

void add_windows(const DecoderConfig& config, const DecoderForm& form, Json& json) {
  if (form.windows == DecoderWindows::none) return;
  std::int64_t window = 0;
  Json types = Json::array();
  for (const auto& layer : config.layers) {
    window = std::max(window, layer.window);
    types.push_back(layer.window > 0 ? kSlidingAttention : kFullAttention);
  }
  json["sliding_window"] = window > 0 ? Json(window) : Json();
  if (form.asks_for_window) json["use_sliding_window"] = window > 0;
  if (form.windows == DecoderWindows::typed) json["layer_types"] = types;
}

}  // namespace

Json decoder_fields(const DecoderConfig& config) {
  const DecoderForm& form = decoder_form_of(config.model_type);
  Json json = {{"attention_dropout", config.attention_dropout},
               {"bos_token_id", or_null(config.bos_token_id)},
               {"eos_token_id", token_ids(config.eos_token_id)},
               {"head_dim", config.head_dim},
               {form.activation_field, config.hidden_act},
               {"hidden_size", config.hidden_size},
               {"initializer_range", config.initializer_range},
               {"intermediate_size", config.intermediate_size},
               {"max_position_embeddings", config.max_position_embeddings},
               {"model_type", config.model_type},
               {"num_attention_heads", config.num_attention_heads},
               {"num_hidden_layers", config.layers.size()},
               {"num_key_value_heads", config.num_key_value_heads},
               {"pad_token_id", or_null(config.pad_token_id)},
               {"rms_norm_eps", config.rms_norm_eps},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"vocab_size", config.vocab_size}};
  if (form.has_attention_bias) json["attention_bias"] = config.qkv_bias;
  if (form.has_mlp_bias) json["mlp_bias"] = config.mlp_bias;
  if (form.has_query_scalar) {
    const double scalar = std::pow(config.attention_scale.value_or(0.0625), -2);
    json["query_pre_attn_scalar"] = static_cast<std::int64_t>(std::llround(scalar));
    json["final_logit_softcapping"] = cap(config.logits_softcap);
  }
  if (is_family(config, "gemma2")) json["attn_logit_softcapping"] = cap(config.attention_softcap);
  if (is_family(config, "granite")) {
    json.update({{"attention_multiplier", config.attention_scale.value_or(1)},
                 {"embedding_multiplier", config.embedding_scale},
                 {"logits_scaling", config.logits_scale},
                 {"residual_multiplier", config.residual_scale}});
  }
  if (is_family(config, "phi3")) json["resid_pdrop"] = config.resid_pdrop;
  if (is_family(config, "smollm3")) {
    Json has_rope = Json::array();
    for (const auto& layer : config.layers) has_rope.push_back(layer.rope ? 1 : 0);
    json["no_rope_layers"] = has_rope;
  }
  add_windows(config, form, json);
  add_ropes(config, form, json);
  return json;
}

}  // namespace lockstep::models
