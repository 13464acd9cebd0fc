#include "lockstep/models/bert.hpp"

#include <fmt/core.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/residual.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Dropout;
using torch::nn::Embedding;
using torch::nn::LayerNorm;

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
    const auto parts = packed_forward(states, {query_, key_, value_});
    return attend(split_heads(parts[0], heads_), split_heads(parts[1], heads_), split_heads(parts[2], heads_),
                  {.mask = mask}, is_training() ? dropout_ : 0.0);
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

  Norms forward(const at::Tensor& states, const Norms& around) {
    return normalize_sum(dropout_(dense_(states)), around, norm_);
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

  Norms forward(const Norms& states, const at::Tensor& mask) {
    return output_(self_(states.back(), mask), states);
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
  at::Tensor forward(const at::Tensor& states) { return dense_->activated(states, activation_); }

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

  Norms forward(const Norms& states, const at::Tensor& mask) {
    return through(*this, &BertLayerImpl::body, states, mask);
  }

 private:
  Norms body(const Norms& states, const at::Tensor& mask) {
    const Norms attended = attention_(states, mask);
    return output_(intermediate_(attended.back()), attended);
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
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
      layers_->push_back(made_in_dtype(BertLayer(config)));
  }

  at::Tensor forward(const at::Tensor& embedded, const at::Tensor& mask) {
    Norms states{embedded};
    for (const auto& layer : *layers_) states = layer->as<BertLayerImpl>()->forward(states, mask);
    return states.front();
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

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config)
    : config_(config) {
  if (!config.id2label.empty()) set_id2label(config.id2label);
  bert_ = register_module("bert", BertModel(config));
  dropout_ =
      register_module("dropout", Dropout(config.classifier_dropout.value_or(config.hidden_dropout_prob)));
  classifier_ = register_module("classifier", torch::nn::Linear(config.hidden_size, config.num_labels));
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

}  // namespace lockstep::models
