#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/decoder.hpp"
#include "models/attention.hpp"
#include "models/config_file.hpp"
#include "models/decoder_fields.hpp"
#include "models/decoder_form.hpp"
#include "models/model_origin.hpp"
#include "models/nf4_load.hpp"

namespace lockstep::models {
namespace {

using Json = nlohmann::ordered_json;
using Token = std::optional<std::int64_t>;

void refuse_what_is_not_implemented(const ConfigFile& file) {
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    std::int64_t experts = 0;
    file.number(field, experts, 0);
    if (experts > 0) file.fail(field, "none: mixtures of experts are not implemented");
  }
  for (const char* field : {"vision_config", "audio_config", "text_config"})
    file.require_none(field, "none: models of images or sound are not implemented");
  static_cast<void>(nf4_of_config(file));
  file.require_none("attention_chunk_size", "none: attention in chunks is not implemented");
  file.require_none("clip_qkv", "none: it is not implemented");
  for (const char* field : {"use_bidirectional_attention", "add_cross_attention", "rope_interleaved",
                            "rope_interleave", "use_qk_norm"})
    file.require(field, false);
}

/// Sets `value` to none for null in the file.
void read_optional(const ConfigFile& file, const char* field, std::optional<double>& value, double most) {
  if (file.is_null(field)) value.reset();
  file.real(field, value, most);
}

void read_cap(const ConfigFile& file, const char* field, double& cap) {
  if (file.is_null(field)) cap = 0;
  file.real(field, cap, 1e9);
}

constexpr double kMostTheta = 1e18, kMostFactor = 1e9;

/// The fields of one rope, in rope_parameters, rope_scaling, or an object of a layer type's.
void read_rope(const ConfigFile& fields, const DecoderConfig& config, Token original, RopeConfig& rope) {
  auto& scaling = rope.scaling;
  fields.real("rope_theta", rope.theta, kMostTheta);
  fields.real("partial_rotary_factor", rope.partial_rotary_factor, 1);
  const char* type = fields.has("rope_type") ? "rope_type" : "type";
  fields.choice(type, scaling.rope_type,
                {"default", "linear", "dynamic", "yarn", "llama3", "longrope", "su"});
  // What early versions of Phi-3 say.
  if (scaling.rope_type == "su" || (is_family(config, "phi3") && scaling.rope_type == "yarn"))
    scaling.rope_type = "longrope";
  for (const char* field : {"mrope_section", "short_mscale", "long_mscale"})
    fields.require_none(field, "none: it is not implemented");
  if (scaling.rope_type == "default") return;
  if (scaling.rope_type == "linear" || scaling.rope_type == "dynamic" || scaling.rope_type == "llama3")
    fields.require_some("factor");
  read_optional(fields, "factor", scaling.factor, kMostFactor);
  if (scaling.rope_type == "linear" || scaling.rope_type == "dynamic") return;
  scaling.original_max_position_embeddings = config.max_position_embeddings;
  fields.number("original_max_position_embeddings", scaling.original_max_position_embeddings);
  // As in transformers, what the file says outside counts more.
  if (original) scaling.original_max_position_embeddings = *original;
  if (scaling.rope_type == "llama3") {
    for (const char* field : {"low_freq_factor", "high_freq_factor"}) fields.require_some(field);
    fields.real("low_freq_factor", scaling.low_freq_factor, kMostFactor);
    fields.real("high_freq_factor", scaling.high_freq_factor, kMostFactor);
    return;
  }
  read_optional(fields, "attention_factor", scaling.attention_factor, kMostFactor);
  if (scaling.rope_type == "longrope") {
    for (const char* field : {"short_factor", "long_factor"}) fields.require_some(field);
    fields.reals("short_factor", scaling.short_factor, kMostFactor);
    fields.reals("long_factor", scaling.long_factor, kMostFactor);
    return;
  }
  fields.real("beta_fast", scaling.beta_fast, kMostFactor);
  fields.real("beta_slow", scaling.beta_slow, kMostFactor);
  read_optional(fields, "mscale", scaling.mscale, kMostFactor);
  read_optional(fields, "mscale_all_dim", scaling.mscale_all_dim, kMostFactor);
  fields.flag("truncate", scaling.truncate);
}

void read_ropes(const ConfigFile& file, const DecoderForm& form, DecoderConfig& config) {
  RopeConfig rope{.theta = form.theta};
  Token original;
  if (form.has_partial_rope) original = 4096;
  file.number("original_max_position_embeddings", original, 1);
  file.real("rope_theta", rope.theta, kMostTheta);
  file.real("partial_rotary_factor", rope.partial_rotary_factor, 1);
  const auto scaling = file.section("rope_scaling"), parameters = file.section("rope_parameters");
  config.has_rope_parameters = parameters.has_value();
  if (!form.two_ropes) {
    // Transformers takes rope_scaling first.
    const auto& fields = scaling ? scaling : parameters;
    if (fields && fields->has(kFullAttention))
      fields->fail(kFullAttention, "none: all layers of this family have the same positions");
    if (fields) read_rope(*fields, config, original, rope);
    config.ropes = {rope};
  } else {
    RopeConfig local{.theta = 10000};
    file.real("rope_local_base_freq", local.theta, kMostTheta);
    if (parameters) {
      if (parameters->has("rope_theta") || parameters->has("rope_type"))
        file.fail("rope_parameters", fmt::format("objects '{}' and '{}'", kFullAttention, kSlidingAttention));
      if (const auto fields = parameters->section(kFullAttention)) read_rope(*fields, config, original, rope);
      if (const auto fields = parameters->section(kSlidingAttention))
        read_rope(*fields, config, original, local);
    }
    if (scaling) read_rope(*scaling, config, original, rope);
    config.ropes = {rope, local};
  }
  for (const auto& one : config.ropes) {
    if (!form.has_partial_rope && one.partial_rotary_factor != 1)
      throw DataError(
          fmt::format("{}: 'partial_rotary_factor' is {}, expected 1: the other is not implemented for '{}'",
                      file.name(), one.partial_rotary_factor, form.model_type));
    if (one.theta <= 0) throw DataError(fmt::format("{}: 'rope_theta' is 0, expected more", file.name()));
  }
}

/// Whether each layer has a window, by default.
std::vector<bool> usual_windows(const ConfigFile& file, const DecoderForm& form, std::int64_t window,
                                const DecoderConfig& config) {
  std::vector<bool> has_window(config.layers.size(), form.windows == DecoderWindows::all && window > 0);
  std::int64_t pattern = form.pattern, first = 28;
  if (form.two_ropes) file.number("sliding_window_pattern", pattern);
  file.number("max_window_layers", first, 0);
  for (std::size_t i = 0; i < has_window.size() && form.windows == DecoderWindows::typed; ++i) {
    if (pattern > 0) {
      has_window[i] = (static_cast<std::int64_t>(i) + 1) % pattern != 0;
    } else if (window > 0) {
      has_window[i] =
          is_family(config, "smollm3") ? !config.layers[i].rope : static_cast<std::int64_t>(i) >= first;
    }
  }
  return has_window;
}

void read_windows(const ConfigFile& file, const DecoderForm& form, DecoderConfig& config) {
  Token given;
  if (form.window > 0) given = form.window;
  file.number("sliding_window", given, 1);
  bool uses = !form.asks_for_window;
  if (form.asks_for_window) file.flag("use_sliding_window", uses);
  const std::int64_t window = uses && form.windows != DecoderWindows::none ? given.value_or(0) : 0;
  std::vector<bool> has_window = usual_windows(file, form, window, config);
  if (file.has("layer_types")) {
    std::vector<std::string> types;
    file.choices("layer_types", types, {kFullAttention, kSlidingAttention});
    if (types.size() != config.layers.size())
      file.fail("layer_types", fmt::format("one for each of {} layers", config.layers.size()));
    const auto usual = has_window;
    for (std::size_t i = 0; i < types.size(); ++i) has_window[i] = types[i] == kSlidingAttention;
    // Which transformers would ignore.
    if (form.windows != DecoderWindows::typed && has_window != usual)
      file.fail("layer_types",
                fmt::format("the same window ('sliding_window') in all layers of a '{}'", form.model_type));
  }
  for (std::size_t i = 0; i < has_window.size(); ++i) {
    if (!has_window[i]) continue;
    if (window == 0) file.fail("layer_types", "no sliding_attention: there is no 'sliding_window'");
    config.layers[i].window = window;
    if (form.two_ropes) config.layers[i].rope = 1;
  }
}

/// SmolLM3's layers without positions.
void read_layers_without_positions(const ConfigFile& file, DecoderConfig& config) {
  std::int64_t interval = 4;
  file.number("no_rope_layer_interval", interval);
  std::vector<std::int64_t> has_rope;
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    has_rope.push_back((static_cast<std::int64_t>(i) + 1) % interval != 0 ? 1 : 0);
  file.numbers("no_rope_layers", has_rope, 0);
  if (has_rope.size() < config.layers.size())
    file.fail("no_rope_layers", fmt::format("one for each of {} layers", config.layers.size()));
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (has_rope[i] == 0) config.layers[i].rope.reset();
  }
}

void read_sizes(const ConfigFile& file, const DecoderForm& form, DecoderConfig& config) {
  config.vocab_size = form.vocab_size;
  config.hidden_size = form.hidden_size;
  config.intermediate_size = form.intermediate_size;
  config.num_attention_heads = form.heads;
  config.max_position_embeddings = form.longest;
  std::int64_t layers = form.layers;
  file.number("vocab_size", config.vocab_size);
  file.number("hidden_size", config.hidden_size);
  file.number("intermediate_size", config.intermediate_size);
  file.number("num_hidden_layers", layers);
  file.number("num_attention_heads", config.num_attention_heads);
  file.number("max_position_embeddings", config.max_position_embeddings);
  config.layers.assign(static_cast<std::size_t>(layers), {});
  Token key_heads, head_dim;
  if (form.key_heads > 0) key_heads = form.key_heads;
  if (form.head_dim > 0) head_dim = form.head_dim;
  file.number("num_key_value_heads", key_heads, 1);
  file.number("head_dim", head_dim, 1);
  config.num_key_value_heads = key_heads.value_or(config.num_attention_heads);
  file.require_multiple("num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                        config.num_key_value_heads);
  if (!head_dim)
    file.require_multiple("hidden_size", config.hidden_size, "num_attention_heads",
                          config.num_attention_heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_attention_heads);
}

/// What is the same in all models of a family.
void set_family(const DecoderForm& form, DecoderConfig& config) {
  config.model_type = form.model_type;
  config.qkv_bias = is_family(config, "qwen2");
  config.fused = is_family(config, "phi3");
  if (is_family(config, "gemma") || is_family(config, "gemma2") || is_family(config, "gemma3_text")) {
    config.norm_weight = NormWeight::plus_one;
    config.rounds_embedding_scale = true;
  }
  if (is_family(config, "gemma2") || is_family(config, "gemma3_text")) config.norms = NormPlaces::around;
  if (is_family(config, "qwen3") || is_family(config, "gemma3_text")) config.qk_norm = QkNorm::head;
  if (is_family(config, "olmo2")) {
    config.norms = NormPlaces::after;
    config.qk_norm = QkNorm::whole;
    config.norm_weight = NormWeight::in_float32;
    config.rope_in_float32 = true;
  }
}

/// What single families have.
void read_specials(const ConfigFile& file, const DecoderForm& form, DecoderConfig& config) {
  if (form.has_attention_bias) {
    file.flag("attention_bias", config.qkv_bias);
    config.output_bias = config.qkv_bias;
  }
  if (form.has_mlp_bias) file.flag("mlp_bias", config.mlp_bias);
  if (config.rounds_embedding_scale)
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  if (form.has_query_scalar) {
    double scalar = 256;
    file.real("query_pre_attn_scalar", scalar, kMostFactor);
    if (scalar <= 0) file.fail("query_pre_attn_scalar", "a number above 0");
    config.attention_scale = std::pow(scalar, -0.5);
    config.logits_softcap = form.logits_softcap;
    read_cap(file, "final_logit_softcapping", config.logits_softcap);
  }
  if (is_family(config, "gemma2")) {
    config.attention_softcap = form.attention_softcap;
    read_cap(file, "attn_logit_softcapping", config.attention_softcap);
  } else {
    file.require_none("attn_logit_softcapping", fmt::format("none in a '{}'", form.model_type));
  }
  if (is_family(config, "granite")) {
    config.attention_scale = 1;
    file.real("embedding_multiplier", config.embedding_scale, kMostFactor);
    file.real("logits_scaling", config.logits_scale, kMostFactor);
    file.real("residual_multiplier", config.residual_scale, kMostFactor);
    file.real("attention_multiplier", config.attention_scale, kMostFactor);
    if (config.logits_scale <= 0) file.fail("logits_scaling", "a number above 0");
  }
  if (is_family(config, "phi3")) file.real("resid_pdrop", config.resid_pdrop, 1);
  if (is_family(config, "smollm3")) read_layers_without_positions(file, config);
  // An old name of the approximation that Gemma was trained with.
  if (is_family(config, "gemma") && config.hidden_act == "gelu") config.hidden_act = "gelu_pytorch_tanh";
}

/// All but the tokens of generate(), which have a file of their own.
DecoderConfig read_decoder(const ConfigFile& file, const DecoderForm& form) {
  refuse_what_is_not_implemented(file);
  DecoderConfig config;
  set_family(form, config);
  read_sizes(file, form, config);
  config.hidden_act = form.activation;
  config.rms_norm_eps = form.eps;
  config.tie_word_embeddings = form.tied;
  config.padding_idx = form.padding;
  config.pad_token_id = form.padding;
  config.bos_token_id = form.bos;
  config.eos_token_id = form.eos ? TokenIds(*form.eos) : TokenIds();
  file.choice(form.activation_field, config.hidden_act, kActivations);
  file.real("rms_norm_eps", config.rms_norm_eps, 1);
  file.real("initializer_range", config.initializer_range, 10);
  file.real("attention_dropout", config.attention_dropout, 1);
  file.flag("tie_word_embeddings", config.tie_word_embeddings);
  file.number("pad_token_id", config.padding_idx, -1);
  // The last one, as in Python.
  if (config.padding_idx == -1) config.padding_idx = config.vocab_size - 1;
  if (config.padding_idx >= config.vocab_size) file.fail("pad_token_id", "a token below vocab_size");
  read_specials(file, form, config);
  read_ropes(file, form, config);
  read_windows(file, form, config);
  return config;
}

/// All but the tokens of generate() and what is remembered of a file.
std::vector<SaidField> said_fields(const DecoderConfig& one, const DecoderConfig& other) {
  std::vector<SaidField> fields;
  const auto compare = [&](const char* name, auto DecoderConfig::*field) {
    fields.push_back({name, one.*field == other.*field});
  };
  using C = DecoderConfig;
  compare("vocab_size", &C::vocab_size);
  compare("hidden_size", &C::hidden_size);
  compare("intermediate_size", &C::intermediate_size);
  compare("num_attention_heads", &C::num_attention_heads);
  compare("num_key_value_heads", &C::num_key_value_heads);
  compare("head_dim", &C::head_dim);
  compare("rms_norm_eps", &C::rms_norm_eps);
  compare("hidden_act", &C::hidden_act);
  compare("tie_word_embeddings", &C::tie_word_embeddings);
  compare("norms", &C::norms);
  compare("norm_weight", &C::norm_weight);
  compare("qk_norm", &C::qk_norm);
  compare("qkv_bias", &C::qkv_bias);
  compare("output_bias", &C::output_bias);
  compare("mlp_bias", &C::mlp_bias);
  compare("fused", &C::fused);
  compare("rope_in_float32", &C::rope_in_float32);
  compare("embedding_scale", &C::embedding_scale);
  compare("residual_scale", &C::residual_scale);
  compare("attention_scale", &C::attention_scale);
  compare("logits_scale", &C::logits_scale);
  compare("attention_softcap", &C::attention_softcap);
  compare("logits_softcap", &C::logits_softcap);
  compare("ropes", &C::ropes);
  compare("layers", &C::layers);
  compare("max_position_embeddings", &C::max_position_embeddings);
  compare("initializer_range", &C::initializer_range);
  compare("attention_dropout", &C::attention_dropout);
  compare("resid_pdrop", &C::resid_pdrop);
  return fields;
}

/// Many folders with a scaling keep the length that the model was trained with before. Those with two kinds
/// of positions, Gemma 3's, have the whole length.
std::int64_t longest_text(const DecoderConfig& config) {
  if (config.ropes.size() > 1) return config.max_position_embeddings;
  double longest = static_cast<double>(config.max_position_embeddings);
  for (const auto& rope : config.ropes) {
    const auto& scaling = rope.scaling;
    if (scaling.rope_type == "default" || scaling.rope_type == "llama3" || !scaling.factor) continue;
    const auto original = scaling.original_max_position_embeddings > 0
                              ? scaling.original_max_position_embeddings
                              : config.max_position_embeddings;
    longest = std::max(longest, *scaling.factor * static_cast<double>(original));
  }
  return static_cast<std::int64_t>(longest);
}

}  // namespace

DecoderConfig DecoderConfig::of(const std::string& model_type) {
  return read_decoder(ConfigFile("the defaults of '" + model_type + "'", Json::object()),
                      decoder_form_of(model_type));
}

DecoderConfig DecoderConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  DecoderConfig config = read_decoder(file, decoder_form_of(file.model_type(model_types())));
  const auto generation = ConfigFile::of_generation(path);
  generation.number("bos_token_id", config.bos_token_id, 0);
  generation.tokens("eos_token_id", config.eos_token_id);
  generation.number("pad_token_id", config.pad_token_id, -1);
  // How some files say that there is none.
  if (config.pad_token_id == -1) config.pad_token_id.reset();
  config.origin = read_origin(path, decoder_fields(config));
  return config;
}

std::string DecoderConfig::to_json() const {
  const DecoderForm& form = decoder_form_of(model_type);
  std::string text = config_text(origin.get(), form.architecture, decoder_fields(*this));
  const ConfigFile file("config.json", Json::parse(text));
  require_said(model_type, said_fields(*this, read_decoder(file, form)));
  return text;
}

ModelConfig DecoderConfig::model_config() const {
  return {.model_type = model_type,
          .vocab_size = vocab_size,
          .max_position_embeddings = longest_text(*this),
          .pad_token_id = pad_token_id,
          .bos_token_id = bos_token_id,
          .eos_token_id = eos_token_id};
}

DecoderConfig DecoderConfig::of(const ModelConfig& config, const ModelSizes& sizes) {
  if (sizes.num_attention_heads < 1 || sizes.hidden_size % sizes.num_attention_heads != 0) {
    throw UsageError(
        fmt::format("the hidden_size of a '{}' ({}) must be a multiple of its num_attention_heads ({})",
                    config.model_type, sizes.hidden_size, sizes.num_attention_heads));
  }
  const Json fields = {{"vocab_size", config.vocab_size},
                       {"hidden_size", sizes.hidden_size},
                       {"intermediate_size", 4 * sizes.hidden_size},
                       {"num_hidden_layers", sizes.num_hidden_layers},
                       {"num_attention_heads", sizes.num_attention_heads},
                       {"num_key_value_heads", nullptr},
                       {"head_dim", nullptr},
                       {"max_position_embeddings", config.max_position_embeddings},
                       {"pad_token_id", config.pad_token_id ? Json(*config.pad_token_id) : Json()}};
  DecoderConfig own = read_decoder(ConfigFile("a new model", fields), decoder_form_of(config.model_type));
  own.pad_token_id = config.pad_token_id;
  own.bos_token_id = config.bos_token_id;
  own.eos_token_id = config.eos_token_id;
  return own;
}

}  // namespace lockstep::models
