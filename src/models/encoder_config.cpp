#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/encoder.hpp"
#include "models/attention.hpp"
#include "models/class_labels.hpp"
#include "models/config_file.hpp"
#include "models/decoder_form.hpp"
#include "models/encoder_form.hpp"
#include "models/model_origin.hpp"
#include "models/modern_bert.hpp"

namespace lockstep::models {
namespace {

nlohmann::ordered_json modern_positions(double theta) {
  return {{"rope_theta", theta}, {"rope_type", "default"}};
}

void add_modern_fields(nlohmann::ordered_json& json, const EncoderConfig& config) {
  const ModernBertFields& own = config.modern;
  json.update({{"attention_bias", own.attention_bias},
               {"classifier_activation", own.classifier_activation},
               {"classifier_bias", own.classifier_bias},
               {"classifier_pooling", own.classifier_pooling},
               {"decoder_bias", own.decoder_bias},
               {"initializer_cutoff_factor", own.initializer_cutoff_factor},
               {"local_attention", own.local_attention},
               {"mlp_bias", own.mlp_bias},
               {"mlp_dropout", own.mlp_dropout},
               {"norm_bias", own.norm_bias}});
  if (own.has_rope_parameters || !own.layer_types.empty()) {
    json["layer_types"] = modern_layer_types(config);
    json["rope_parameters"] = {{kFullAttention, modern_positions(own.global_rope_theta)},
                               {kSlidingAttention, modern_positions(own.local_rope_theta)}};
  } else {
    json.update({{"global_attn_every_n_layers", own.global_attn_every_n_layers},
                 {"global_rope_theta", own.global_rope_theta},
                 {"local_rope_theta", own.local_rope_theta}});
  }
}

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json encoder_fields(const EncoderConfig& config) {
  const EncoderForm& form = encoder_form_of(config.model_type);
  const EncoderFields& fields = form.fields;
  nlohmann::ordered_json json = {{fields.attention_dropout, config.attention_probs_dropout_prob},
                                 {fields.classifier_dropout, nullptr},
                                 {fields.hidden_act, config.hidden_act},
                                 {fields.hidden_dropout, config.hidden_dropout_prob},
                                 {fields.hidden_size, config.hidden_size},
                                 {"initializer_range", config.initializer_range},
                                 {fields.intermediate_size, config.intermediate_size}};
  if (!form.norm_eps) json[fields.norm_eps] = config.layer_norm_eps;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["model_type"] = config.model_type;
  json[fields.num_attention_heads] = config.num_attention_heads;
  json[fields.num_hidden_layers] = config.num_hidden_layers;
  json["pad_token_id"] = nullptr;
  if (form.has_types) json["type_vocab_size"] = config.type_vocab_size;
  json["vocab_size"] = config.vocab_size;
  if (form.embedding_size > 0)
    json["embedding_size"] = config.embedding_size > 0 ? config.embedding_size : config.hidden_size;
  if (config.classifier_dropout) {
    json[fields.classifier_dropout] = *config.classifier_dropout;
  } else if (form.classifier_dropout) {
    json[fields.classifier_dropout] = config.hidden_dropout_prob;
  }
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  if (!config.tie_word_embeddings) json["tie_word_embeddings"] = false;
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  if (form.is_modern) add_modern_fields(json, config);
  add_class_names(json, config.num_labels, config.id2label);
  return json;
}

const char* type_of(const ConfigFile& file) {
  std::string type = "bert";
  file.text("model_type", type);
  for (const auto& known : EncoderConfig::model_types())
    if (type == known) return encoder_form_of(type).model_type;
  file.fail("model_type", fmt::format("'{}': this is the configuration of another model",
                                      fmt::join(EncoderConfig::model_types(), "', '")));
}

void read_sizes(const ConfigFile& file, const EncoderFields& names, EncoderConfig& config) {
  const EncoderFields usual;
  file.number("vocab_size", config.vocab_size);
  // Python takes the usual names of these as well.
  for (const auto& fields : {usual, names}) {
    file.number(fields.hidden_size, config.hidden_size);
    file.number(fields.num_hidden_layers, config.num_hidden_layers);
    file.number(fields.num_attention_heads, config.num_attention_heads);
  }
  file.number(names.intermediate_size, config.intermediate_size);
  file.require_multiple(names.hidden_size, config.hidden_size, names.num_attention_heads,
                        config.num_attention_heads);
}

void read_padding(const ConfigFile& file, const EncoderForm& form, EncoderConfig& config) {
  file.number("pad_token_id", config.pad_token_id, 0);
  if (!form.offsets_positions) return;
  if (!config.pad_token_id)
    file.fail("pad_token_id", fmt::format("a token: a {}'s positions begin behind it", form.name));
  if (first_position(config) >= config.max_position_embeddings)
    throw DataError(fmt::format(
        "{}: the field 'max_position_embeddings' is {}, expected more than 'pad_token_id' + 1, which is {}",
        file.name(), config.max_position_embeddings, first_position(config)));
}

/// The theta of a kind of layer in transformers 5.
void read_modern_theta(const ConfigFile& positions, const char* layers, double& theta) {
  const auto section = positions.section(layers);
  if (!section) return;
  std::string type = "default";
  section->choice("rope_type", type, {"default"});
  section->real("rope_theta", theta, 1e12);
}

void read_modern_layers(const ConfigFile& file, const EncoderConfig& config, ModernBertFields& own) {
  file.number("global_attn_every_n_layers", own.global_attn_every_n_layers);
  file.choices("layer_types", own.layer_types, kModernLayerTypes);
  if (!own.layer_types.empty() && std::ssize(own.layer_types) != config.num_hidden_layers)
    file.fail("layer_types", fmt::format("one for each of {} layers", config.num_hidden_layers));
  file.require_none("rope_scaling", "null: positions with a scaling are not implemented");
  file.real("global_rope_theta", own.global_rope_theta, 1e12);
  if (file.is_null("local_rope_theta")) own.local_rope_theta = own.global_rope_theta;
  file.real("local_rope_theta", own.local_rope_theta, 1e12);
  if (const auto positions = file.section("rope_parameters")) {
    own.has_rope_parameters = true;
    if (positions->has("rope_theta") || positions->has("rope_type"))
      file.fail("rope_parameters", fmt::format("'{}' and '{}'", kFullAttention, kSlidingAttention));
    read_modern_theta(*positions, kFullAttention, own.global_rope_theta);
    read_modern_theta(*positions, kSlidingAttention, own.local_rope_theta);
  }
  if (own.global_rope_theta <= 0 || own.local_rope_theta <= 0)
    throw DataError(fmt::format("{}: rope_theta must be greater than 0", file.name()));
}

void read_modern_fields(const ConfigFile& file, EncoderConfig& config) {
  ModernBertFields& own = config.modern;
  read_modern_layers(file, config, own);
  file.number("local_attention", own.local_attention);
  for (const auto& [field, flag] : {std::pair("norm_bias", &own.norm_bias),
                                    {"attention_bias", &own.attention_bias},
                                    {"mlp_bias", &own.mlp_bias},
                                    {"classifier_bias", &own.classifier_bias},
                                    {"decoder_bias", &own.decoder_bias}})
    file.flag(field, *flag);
  file.real("mlp_dropout", own.mlp_dropout, 1);
  file.real("initializer_cutoff_factor", own.initializer_cutoff_factor, 100);
  file.choice("classifier_pooling", own.classifier_pooling, kPoolings);
  file.choice("classifier_activation", own.classifier_activation, kActivations);
}

}  // namespace

EncoderConfig EncoderConfig::of(const std::string& model_type) {
  const EncoderForm& form = encoder_form_of(model_type);
  EncoderConfig config;
  config.model_type = model_type;
  config.vocab_size = form.vocab_size;
  config.hidden_size = form.hidden_size;
  config.num_hidden_layers = form.layers;
  config.num_attention_heads = form.heads;
  config.intermediate_size = form.intermediate_size;
  config.pad_token_id = form.padding;
  config.embedding_size = form.embedding_size;
  config.classifier_dropout = form.classifier_dropout;
  config.max_position_embeddings = form.max_positions;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = form.dropout;
  config.layer_norm_eps = form.norm_eps_default;
  if (!form.has_types) config.type_vocab_size = 1;
  if (form.norm_eps) config.layer_norm_eps = *form.norm_eps;
  return config;
}

EncoderConfig EncoderConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  EncoderConfig config = of(type_of(file));
  const EncoderForm& form = encoder_form_of(config.model_type);
  const EncoderFields& names = form.fields;
  read_sizes(file, names, config);
  file.choice(names.hidden_act, config.hidden_act, kActivations);
  file.real(names.hidden_dropout, config.hidden_dropout_prob, 1);
  file.real(names.attention_dropout, config.attention_probs_dropout_prob, 1);
  file.real(names.classifier_dropout, config.classifier_dropout, 1);
  file.number("max_position_embeddings", config.max_position_embeddings);
  if (form.has_types) file.number("type_vocab_size", config.type_vocab_size);
  if (form.embedding_size > 0) file.number("embedding_size", config.embedding_size);
  file.real("initializer_range", config.initializer_range, 10);
  if (!form.norm_eps) file.real(names.norm_eps, config.layer_norm_eps, 1);
  read_padding(file, form, config);
  if (form.is_modern) read_modern_fields(file, config);
  file.labels(config.num_labels, config.id2label);
  file.choice("problem_type", config.problem_type, kProblemTypes);
  file.flag("tie_word_embeddings", config.tie_word_embeddings);
  if (!form.is_modern) {
    std::string positions = "absolute";
    file.choice("position_embedding_type", positions, {"absolute"});
  }
  file.require("is_decoder", false);
  config.origin = read_origin(path, encoder_fields(config));
  return config;
}

std::string EncoderConfig::to_json(const std::string& architecture) const {
  const EncoderForm& form = encoder_form_of(model_type);
  const auto is_width = [&](std::int64_t width) { return width == 0 || width == hidden_size; };
  require_said(model_type, {{"layer_norm_eps", !form.norm_eps || layer_norm_eps == *form.norm_eps},
                            {"embedding_size", form.embedding_size > 0 || is_width(embedding_size)},
                            {"problem_type", is_problem_type(problem_type)}});
  return config_text(origin.get(), architecture, encoder_fields(*this));
}

std::string EncoderConfig::architecture(const std::string& task) const {
  return encoder_form_of(model_type).class_name + task;
}

ModelConfig EncoderConfig::model_config() const {
  return {.model_type = model_type,
          .vocab_size = vocab_size,
          .max_position_embeddings = max_position_embeddings - first_position(*this),
          .pad_token_id = pad_token_id,
          .num_labels = num_labels,
          .id2label = id2label,
          .problem_type = problem_type};
}

}  // namespace lockstep::models
