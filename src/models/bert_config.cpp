#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention.hpp"
#include "config_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/class_names.hpp"

namespace lockstep::models {
namespace {

std::vector<std::string> names_of_classes(const BertConfig& config) {
  if (config.id2label.empty()) return placeholder_class_names(config.num_labels);
  if (std::ssize(config.id2label) == config.num_labels) return config.id2label;
  throw UsageError(fmt::format("num_labels is {}, but id2label names {} classes: expected as many",
                               config.num_labels, config.id2label.size()));
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
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("type_vocab_size", config.type_vocab_size);
  file.real("initializer_range", config.initializer_range, 10);
  file.real("layer_norm_eps", config.layer_norm_eps, 1);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.labels(config.num_labels, config.id2label);
  std::string positions = "absolute";
  file.choice("position_embedding_type", positions, {"absolute"});
  file.require("is_decoder", false);
  return config;
}

std::string BertConfig::to_json(const std::string& architecture) const {
  nlohmann::ordered_json json = {{"architectures", {architecture}},
                                 {"attention_probs_dropout_prob", attention_probs_dropout_prob},
                                 {"hidden_act", hidden_act},
                                 {"hidden_dropout_prob", hidden_dropout_prob},
                                 {"hidden_size", hidden_size},
                                 {"initializer_range", initializer_range},
                                 {"intermediate_size", intermediate_size},
                                 {"layer_norm_eps", layer_norm_eps},
                                 {"max_position_embeddings", max_position_embeddings},
                                 {"model_type", "bert"},
                                 {"num_attention_heads", num_attention_heads},
                                 {"num_hidden_layers", num_hidden_layers},
                                 {"pad_token_id", pad_token_id},
                                 {"type_vocab_size", type_vocab_size},
                                 {"vocab_size", vocab_size}};
  nlohmann::ordered_json names;
  std::map<std::string, std::int64_t> ids;
  std::int64_t label = 0;
  for (const auto& name : names_of_classes(*this)) {
    names[std::to_string(label)] = name;
    ids[name] = label++;
  }
  json["id2label"] = std::move(names);
  json["label2id"] = ids;
  return json.dump(2) + "\n";
}

}  // namespace lockstep::models
