#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/class_names.hpp"
#include "models/attention.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

std::vector<std::string> names_of_classes(const BertConfig& config) {
  if (config.id2label.empty()) return placeholder_class_names(config.num_labels);
  if (std::ssize(config.id2label) == config.num_labels) return config.id2label;
  throw UsageError(fmt::format("num_labels is {}, but id2label names {} classes: expected as many",
                               config.num_labels, config.id2label.size()));
}

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json known_fields(const BertConfig& config) {
  nlohmann::ordered_json json = {{"attention_probs_dropout_prob", config.attention_probs_dropout_prob},
                                 {"classifier_dropout", nullptr},
                                 {"hidden_act", config.hidden_act},
                                 {"hidden_dropout_prob", config.hidden_dropout_prob},
                                 {"hidden_size", config.hidden_size},
                                 {"initializer_range", config.initializer_range},
                                 {"intermediate_size", config.intermediate_size},
                                 {"layer_norm_eps", config.layer_norm_eps},
                                 {"max_position_embeddings", config.max_position_embeddings},
                                 {"model_type", "bert"},
                                 {"num_attention_heads", config.num_attention_heads},
                                 {"num_hidden_layers", config.num_hidden_layers},
                                 {"pad_token_id", nullptr},
                                 {"type_vocab_size", config.type_vocab_size},
                                 {"vocab_size", config.vocab_size}};
  if (config.classifier_dropout) json["classifier_dropout"] = *config.classifier_dropout;
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  nlohmann::ordered_json names;
  std::map<std::string, std::int64_t> ids;
  std::int64_t label = 0;
  for (const auto& name : names_of_classes(config)) {
    names[std::to_string(label)] = name;
    ids[name] = label++;
  }
  json["id2label"] = std::move(names);
  json["label2id"] = ids;
  return json;
}

}  // namespace

BertConfig BertConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("bert");
  BertConfig config;
  file.number("vocab_size", config.vocab_size);
  file.number("hidden_size", config.hidden_size);
  file.number("num_hidden_layers", config.num_hidden_layers);
  file.number("num_attention_heads", config.num_attention_heads);
  file.number("intermediate_size", config.intermediate_size);
  file.choice("hidden_act", config.hidden_act, kActivations);
  file.real("hidden_dropout_prob", config.hidden_dropout_prob, 1);
  file.real("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 1);
  file.real("classifier_dropout", config.classifier_dropout, 1);
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("type_vocab_size", config.type_vocab_size);
  file.real("initializer_range", config.initializer_range, 10);
  file.real("layer_norm_eps", config.layer_norm_eps, 1);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.labels(config.num_labels, config.id2label);
  file.choice("problem_type", config.problem_type,
              {"regression", "single_label_classification", "multi_label_classification"});
  std::string positions = "absolute";
  file.choice("position_embedding_type", positions, {"absolute"});
  file.require("is_decoder", false);
  file.require_multiple("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  config.origin = read_origin(path, known_fields(config));
  return config;
}

std::string BertConfig::to_json(const std::string& architecture) const {
  return config_text(origin.get(), architecture, known_fields(*this));
}

ModelConfig BertConfig::model_config() const {
  return {.model_type = "bert",
          .vocab_size = vocab_size,
          .max_position_embeddings = max_position_embeddings,
          .pad_token_id = pad_token_id,
          .num_labels = num_labels,
          .id2label = id2label,
          .problem_type = problem_type};
}

}  // namespace lockstep::models
