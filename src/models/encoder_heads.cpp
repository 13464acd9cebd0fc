#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <cmath>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/encoder.hpp"
#include "models/attention.hpp"
#include "models/class_labels.hpp"
#include "models/encoder_form.hpp"
#include "models/encoder_layers.hpp"
#include "models/modern_bert.hpp"

namespace lockstep::models {
namespace {

const EncoderForm& encoder_form(const EncoderConfig& config) { return encoder_form_of(config.model_type); }

double classifier_dropout(const EncoderConfig& config) {
  return config.classifier_dropout.value_or(config.hidden_dropout_prob);
}

/// A layer of a head. A ModernBERT's has no bias unless classifier_bias.
Linear head_layer(const EncoderConfig& config, std::int64_t outputs) {
  const bool has_bias = !encoder_form(config).is_modern || config.modern.classifier_bias;
  return Linear(torch::nn::LinearOptions(config.hidden_size, outputs).bias(has_bias));
}

const char* activation_of(const EncoderConfig& config) {
  const auto& form = encoder_form(config);
  return form.is_modern ? config.modern.classifier_activation.c_str() : form.classifier.activation;
}

void initialize_dense(torch::nn::LinearImpl& layer, const EncoderConfig& config) {
  if (encoder_form(config).is_modern) {
    initialize_modern_layer(layer, modern_output_spread(config), config);
  } else {
    initialize(layer, config.initializer_range);
  }
}

void initialize_classifier(torch::nn::LinearImpl& layer, const EncoderConfig& config) {
  if (encoder_form(config).is_modern) {
    initialize_modern_layer(layer, 1 / std::sqrt(static_cast<double>(config.hidden_size)), config);
  } else {
    initialize(layer, config.initializer_range);
  }
}

/// What a classifier of texts sees of a model without a pooling layer.
at::Tensor text_states(const EncoderConfig& config, const at::Tensor& states,
                       const at::Tensor& attention_mask) {
  if (!encoder_form(config).is_modern || config.modern.classifier_pooling == "cls")
    return states.select(1, 0);
  if (!attention_mask.defined()) return states.mean(1);
  const at::Tensor counts = attention_mask.to(states.scalar_type()).unsqueeze(-1);
  return (states * counts).sum(1) / counts.sum(1);
}

}  // namespace

EncoderForSequenceClassificationImpl::EncoderForSequenceClassificationImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForSequenceClassification") {
  const auto& form = encoder_form(config);
  const auto& head = form.classifier;
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  body_ = register_module(form.prefix, EncoderModel(config, head.pools));
  if (head.dense != nullptr) dense_ = register_at(*this, head.dense, head_layer(config, config.hidden_size));
  if (head.norm != nullptr) norm_ = register_at(*this, head.norm, encoder_norm(config.hidden_size, config));
  classifier_ = register_at(*this, head.output, torch::nn::Linear(config.hidden_size, config.num_labels));
  if (dense_) initialize_dense(*dense_, config);
  initialize_classifier(*classifier_, config);
}

void EncoderForSequenceClassificationImpl::set_id2label(std::vector<std::string> names) {
  check_class_names(names, config_.num_labels);
  config_.id2label = std::move(names);
}

at::Tensor EncoderForSequenceClassificationImpl::forward(const at::Tensor& input_ids,
                                                         const at::Tensor& attention_mask,
                                                         const at::Tensor& token_type_ids) {
  const auto& head = encoder_form(config_).classifier;
  const auto drop = [&](const at::Tensor& states) {
    return at::dropout(states, classifier_dropout(config_), is_training());
  };
  const auto output = body_(input_ids, attention_mask, token_type_ids);
  at::Tensor states =
      head.pools ? output.pooler_output : text_states(config_, output.last_hidden_state, attention_mask);
  if (dense_) {
    if (head.drops_input) states = drop(states);
    states = dense_->activated(states, activation_of(config_));
    if (norm_) states = norm_(states);
  }
  return classifier_(drop(states));
}

EncoderForTokenClassificationImpl::EncoderForTokenClassificationImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForTokenClassification") {
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  const auto& head = encoder_form(config).classifier;
  body_ = register_module(encoder_form(config).prefix, EncoderModel(config, /*add_pooling_layer=*/false));
  if (head.norm != nullptr) {
    dense_ = register_at(*this, head.dense, head_layer(config, config.hidden_size));
    norm_ = register_at(*this, head.norm, encoder_norm(config.hidden_size, config));
    initialize_dense(*dense_, config);
  }
  classifier_ = register_module("classifier", torch::nn::Linear(config.hidden_size, config.num_labels));
  initialize_classifier(*classifier_, config);
}

void EncoderForTokenClassificationImpl::set_id2label(std::vector<std::string> names) {
  check_class_names(names, config_.num_labels);
  config_.id2label = std::move(names);
}

at::Tensor EncoderForTokenClassificationImpl::forward(const at::Tensor& input_ids,
                                                      const at::Tensor& attention_mask,
                                                      const at::Tensor& token_type_ids,
                                                      const at::Tensor& position_ids) {
  const double dropout =
      encoder_form(config_).drops_tokens_as_texts ? classifier_dropout(config_) : config_.hidden_dropout_prob;
  at::Tensor states = body_(input_ids, attention_mask, token_type_ids, position_ids).last_hidden_state;
  if (dense_) states = norm_(dense_->activated(states, activation_of(config_)));
  return classifier_(at::dropout(states, dropout, is_training()));
}

EncoderForMaskedLMImpl::EncoderForMaskedLMImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForMaskedLM") {
  const auto& form = encoder_form(config);
  const auto& head = form.masked;
  activation_ = form.is_modern               ? config.modern.classifier_activation
                : head.activation != nullptr ? head.activation
                                             : config.hidden_act;
  body_ = register_module(form.prefix, EncoderModel(config, /*add_pooling_layer=*/false));
  const std::int64_t width = embedding_width(config);
  dense_ = register_at(*this, head.dense, head_layer(config, width));
  norm_ = register_at(*this, head.norm, encoder_norm(width, config));
  const bool has_bias = !form.is_modern || config.modern.decoder_bias;
  const std::string own_bias = std::string(head.decoder) + ".bias";
  if (!config.tie_word_embeddings) {
    const PartPlace place = place_of_part(*this, std::string(head.decoder) + ".weight");
    weight_ = place.module.register_parameter(place.name, torch::empty({config.vocab_size, width}));
    if (form.is_modern) {
      initialize_modern_weight(weight_, modern_output_spread(config), config);
    } else {
      torch::nn::init::normal_(weight_, 0, config.initializer_range);
    }
    if (own_bias != head.bias) {
      const PartPlace unused = place_of_part(*this, head.bias);
      unused_bias_ = unused.module.register_buffer(unused.name, torch::zeros({config.vocab_size}));
    }
  }
  if (has_bias) {
    const PartPlace place = place_of_part(*this, config.tie_word_embeddings ? head.bias : own_bias);
    bias_ = place.module.register_parameter(place.name, torch::zeros({config.vocab_size}));
  }
  initialize_dense(*dense_, config);
}

at::Tensor EncoderForMaskedLMImpl::states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                          const at::Tensor& token_type_ids, const at::Tensor& position_ids) {
  const auto output = body_(input_ids, attention_mask, token_type_ids, position_ids);
  return norm_(dense_->activated(output.last_hidden_state, activation_));
}

TokenHead EncoderForMaskedLMImpl::head() const {
  return {.weight = weight_.defined() ? weight_ : body_->word_embeddings(), .bias = bias_};
}

}  // namespace lockstep::models
