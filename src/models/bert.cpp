#include <fmt/core.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention.hpp"
#include "config_file.hpp"
#include "families.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/class_names.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/parallel/unit.hpp"
#include "model_origin.hpp"

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

ModelConfig model_config_of(const BertConfig& config) {
  return {.model_type = "bert",
          .vocab_size = config.vocab_size,
          .max_position_embeddings = config.max_position_embeddings,
          .pad_token_id = config.pad_token_id,
          .num_labels = config.num_labels,
          .id2label = config.id2label,
          .problem_type = config.problem_type};
}

}  // namespace lockstep::models

namespace lockstep::models {
namespace {

using torch::nn::Dropout;
using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::Linear;

LayerNorm layer_norm(const BertConfig& config) {
  return LayerNorm(torch::nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps));
}

void check(const BertConfig& config) {
  if (config.num_attention_heads < 1 || config.hidden_size % config.num_attention_heads != 0) {
    throw UsageError(
        fmt::format("a BERT's hidden_size ({}) must be a multiple of its num_attention_heads ({})",
                    config.hidden_size, config.num_attention_heads));
  }
}

class BertSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit BertSelfAttentionImpl(const BertConfig& config)
      : heads_(config.num_attention_heads), dropout_(config.attention_probs_dropout_prob) {
    query_ = register_module("query", Linear(config.hidden_size, config.hidden_size));
    key_ = register_module("key", Linear(config.hidden_size, config.hidden_size));
    value_ = register_module("value", Linear(config.hidden_size, config.hidden_size));
  }

  at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
    return attend(split_heads(query_(states), heads_), split_heads(key_(states), heads_),
                  split_heads(value_(states), heads_), {.mask = mask}, is_training() ? dropout_ : 0.0);
  }

 private:
  std::int64_t heads_;
  double dropout_;
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
};
TORCH_MODULE(BertSelfAttention);

/// A linear layer and dropout with a residual connection, then normalization.
class BertOutputLayerImpl : public torch::nn::Module {
 public:
  BertOutputLayerImpl(const BertConfig& config, std::int64_t inputs) {
    dense_ = register_module("dense", Linear(inputs, config.hidden_size));
    norm_ = register_module("LayerNorm", layer_norm(config));
    dropout_ = register_module("dropout", Dropout(config.hidden_dropout_prob));
  }

  at::Tensor forward(const at::Tensor& states, const at::Tensor& around) {
    return norm_(dropout_(dense_(states)) + around);
  }

 private:
  Linear dense_{nullptr};
  LayerNorm norm_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(BertOutputLayer);

class BertAttentionImpl : public torch::nn::Module {
 public:
  explicit BertAttentionImpl(const BertConfig& config) {
    self_ = register_module("self", BertSelfAttention(config));
    output_ = register_module("output", BertOutputLayer(config, config.hidden_size));
  }

  at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
    return output_(self_(states, mask), states);
  }

 private:
  BertSelfAttention self_{nullptr};
  BertOutputLayer output_{nullptr};
};
TORCH_MODULE(BertAttention);

class BertIntermediateImpl : public torch::nn::Module {
 public:
  explicit BertIntermediateImpl(const BertConfig& config) : activation_(config.hidden_act) {
    dense_ = register_module("dense", Linear(config.hidden_size, config.intermediate_size));
  }
  at::Tensor forward(const at::Tensor& states) { return activate(activation_, dense_(states)); }

 private:
  std::string activation_;
  Linear dense_{nullptr};
};
TORCH_MODULE(BertIntermediate);

class BertLayerImpl : public torch::nn::Module, public Unit {
 public:
  explicit BertLayerImpl(const BertConfig& config) {
    attention_ = register_module("attention", BertAttention(config));
    intermediate_ = register_module("intermediate", BertIntermediate(config));
    output_ = register_module("output", BertOutputLayer(config, config.intermediate_size));
  }

  at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
    return through(*this, &BertLayerImpl::body, states, mask);
  }

 private:
  at::Tensor body(const at::Tensor& states, const at::Tensor& mask) {
    const at::Tensor attended = attention_(states, mask);
    return output_(intermediate_(attended), attended);
  }

  BertAttention attention_{nullptr};
  BertIntermediate intermediate_{nullptr};
  BertOutputLayer output_{nullptr};
};
TORCH_MODULE(BertLayer);

}  // namespace

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const BertConfig& config) {
    const auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.hidden_size);
    words_ = register_module("word_embeddings",
                             Embedding(torch::nn::EmbeddingOptions(words).padding_idx(config.pad_token_id)));
    positions_ =
        register_module("position_embeddings", Embedding(config.max_position_embeddings, config.hidden_size));
    types_ = register_module("token_type_embeddings", Embedding(config.type_vocab_size, config.hidden_size));
    norm_ = register_module("LayerNorm", layer_norm(config));
    dropout_ = register_module("dropout", Dropout(config.hidden_dropout_prob));
  }

  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types, const at::Tensor& positions) {
    const at::Tensor places = positions.defined()
                                  ? positions
                                  : torch::arange(ids.size(1), ids.options().dtype(at::kLong)).unsqueeze(0);
    const at::Tensor kinds = types.defined() ? types : at::zeros_like(ids);
    return dropout_(norm_(words_(ids) + types_(kinds) + positions_(places)));
  }

 private:
  Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  LayerNorm norm_{nullptr};
  Dropout dropout_{nullptr};
};

class BertEncoderImpl : public torch::nn::Module {
 public:
  explicit BertEncoderImpl(const BertConfig& config) {
    layers_ = register_module("layer", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers_->push_back(made(BertLayer(config)));
  }

  at::Tensor forward(at::Tensor states, const at::Tensor& mask) {
    for (const auto& layer : *layers_) states = layer->as<BertLayerImpl>()->forward(states, mask);
    return states;
  }

 private:
  torch::nn::ModuleList layers_{nullptr};
};

class BertPoolerImpl : public torch::nn::Module {
 public:
  explicit BertPoolerImpl(const BertConfig& config) {
    dense_ = register_module("dense", Linear(config.hidden_size, config.hidden_size));
  }
  at::Tensor forward(const at::Tensor& states) { return at::tanh(dense_(states.select(1, 0))); }

 private:
  Linear dense_{nullptr};
};

BertModelImpl::BertModelImpl(const BertConfig& config, bool add_pooling_layer) : config_(config) {
  check(config);
  embeddings_ = register_module("embeddings", std::make_shared<BertEmbeddingsImpl>(config));
  encoder_ = register_module("encoder", std::make_shared<BertEncoderImpl>(config));
  if (add_pooling_layer) pooler_ = register_module("pooler", std::make_shared<BertPoolerImpl>(config));
  apply([&](torch::nn::Module& module) { initialize(module, config_.initializer_range); });
}

BertModelImpl::~BertModelImpl() = default;

TextEncoderOutput BertModelImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                         const at::Tensor& token_type_ids, const at::Tensor& position_ids) {
  check_tokens("BERT", input_ids, position_ids, config_.max_position_embeddings);
  const bool several_texts = position_ids.defined() && !attention_mask.defined();
  const at::Tensor mask = several_texts ? same_text_mask(position_ids) : padding_mask(attention_mask);
  TextEncoderOutput output;
  output.last_hidden_state =
      encoder_->forward(embeddings_->forward(input_ids, token_type_ids, position_ids), mask);
  if (pooler_) output.pooler_output = pooler_->forward(output.last_hidden_state);
  return output;
}

ModelConfig BertModelImpl::model_config() const { return model_config_of(config_); }

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config)
    : config_(config) {
  if (!config.id2label.empty()) set_id2label(config.id2label);
  bert_ = register_module("bert", BertModel(config));
  dropout_ =
      register_module("dropout", Dropout(config.classifier_dropout.value_or(config.hidden_dropout_prob)));
  classifier_ = register_module("classifier", Linear(config.hidden_size, config.num_labels));
  initialize(*classifier_, config.initializer_range);
}

void BertForSequenceClassificationImpl::set_id2label(std::vector<std::string> names) {
  if (std::ssize(names) != config_.num_labels) {
    throw UsageError(fmt::format("id2label has {} names, but the classifier has {} classes: expected as many",
                                 names.size(), config_.num_labels));
  }
  config_.id2label = std::move(names);
}

at::Tensor BertForSequenceClassificationImpl::forward(const at::Tensor& input_ids,
                                                      const at::Tensor& attention_mask,
                                                      const at::Tensor& token_type_ids) {
  return classifier_(dropout_(bert_(input_ids, attention_mask, token_type_ids).pooler_output));
}

ModelConfig BertForSequenceClassificationImpl::model_config() const { return model_config_of(config_); }

}  // namespace lockstep::models

namespace lockstep::models {
namespace {

PretrainedNames names_of_bert() {
  return {.base_prefix = "bert.",
          .new_heads = {"pooler.", "bert.pooler."},
          .other_heads = {"cls.", "classifier.", "qa_outputs.", "pooler.", "bert.pooler."},
          .constants = {"embeddings.position_ids"},
          .sizes = {{"embeddings.", "word_embeddings.weight", {"vocab_size", "hidden_size"}},
                    {"embeddings.", "position_embeddings.weight", {"max_position_embeddings", "hidden_size"}},
                    {"embeddings.", "token_type_embeddings.weight", {"type_vocab_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.weight", {"intermediate_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.bias", {"intermediate_size"}},
                    {"encoder.", ".attention.output.dense.weight", {"hidden_size", "hidden_size"}},
                    {"encoder.", ".output.dense.weight", {"hidden_size", "intermediate_size"}},
                    {"classifier.", "", {"id2label", "hidden_size"}},
                    {"", "", {"hidden_size", "hidden_size"}}},
          .layers = {{"encoder.layer.", "num_hidden_layers"}}};
}

}  // namespace

BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer, PretrainedReport* report) {
  BertModel model(BertConfig::from_file(folder), add_pooling_layer);
  load_weights(*model, folder, names_of_bert(), report);
  return model;
}

BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels, PretrainedReport* report,
                                                   bool new_classifier) {
  BertConfig config = BertConfig::from_file(folder);
  const bool new_head = new_classifier || (num_labels != 0 && num_labels != config.num_labels);
  if (new_head) {
    config.id2label.clear();
    config.problem_type.clear();
  }
  if (num_labels != 0) config.num_labels = num_labels;
  BertForSequenceClassification model(config);
  auto names = names_of_bert();
  names.new_heads.push_back("classifier.");
  auto tensors = parallel::named_state_of(*model);
  // A classifier with other classes is a different head, even with the same name.
  const auto is_head = [](const NamedTensor& entry) { return entry.name.starts_with("classifier."); };
  if (new_head) tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_head), tensors.end());
  auto found = load_pretrained(folder, tensors, names);
  if (new_head) found.initialized.insert(found.initialized.end(), {"classifier.weight", "classifier.bias"});
  model->set_renames(found.renames);
  if (report) *report = std::move(found);
  return model;
}

}  // namespace lockstep::models
