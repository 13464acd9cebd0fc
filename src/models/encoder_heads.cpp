#include <ATen/ATen.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/encoder.hpp"
#include "models/attention.hpp"
#include "models/class_labels.hpp"
#include "models/encoder_form.hpp"
#include "models/encoder_layers.hpp"

namespace lockstep::models {
namespace {

const EncoderForm& encoder_form(const EncoderConfig& config) { return encoder_form_of(config.model_type); }

double classifier_dropout(const EncoderConfig& config) {
  return config.classifier_dropout.value_or(config.hidden_dropout_prob);
}

}  // namespace

EncoderForSequenceClassificationImpl::EncoderForSequenceClassificationImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForSequenceClassification") {
  const auto& form = encoder_form(config);
  const auto& head = form.classifier;
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  body_ = register_module(form.prefix, EncoderModel(config, head.pools));
  if (head.dense != nullptr)
    dense_ = register_at(*this, head.dense, Linear(config.hidden_size, config.hidden_size));
  classifier_ = register_at(*this, head.output, torch::nn::Linear(config.hidden_size, config.num_labels));
  if (dense_) initialize(*dense_, config.initializer_range);
  initialize(*classifier_, config.initializer_range);
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
  at::Tensor states = head.pools ? output.pooler_output : output.last_hidden_state.select(1, 0);
  if (dense_) {
    if (head.drops_input) states = drop(states);
    states = dense_->activated(states, head.activation);
  }
  return classifier_(drop(states));
}

EncoderForTokenClassificationImpl::EncoderForTokenClassificationImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForTokenClassification") {
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  body_ = register_module(encoder_form(config).prefix, EncoderModel(config, /*add_pooling_layer=*/false));
  classifier_ = register_module("classifier", torch::nn::Linear(config.hidden_size, config.num_labels));
  initialize(*classifier_, config.initializer_range);
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
  const auto output = body_(input_ids, attention_mask, token_type_ids, position_ids);
  return classifier_(at::dropout(output.last_hidden_state, dropout, is_training()));
}

EncoderForMaskedLMImpl::EncoderForMaskedLMImpl(const EncoderConfig& config)
    : EncoderFor(config, "ForMaskedLM") {
  const auto& form = encoder_form(config);
  const auto& head = form.masked;
  if (!config.tie_word_embeddings)
    throw UsageError(
        "tie_word_embeddings is false: a head for masked words with weights of its own is not implemented");
  activation_ = head.activation != nullptr ? head.activation : config.hidden_act;
  body_ = register_module(form.prefix, EncoderModel(config, /*add_pooling_layer=*/false));
  const std::int64_t width = embedding_width(config);
  dense_ = register_at(*this, head.dense, Linear(config.hidden_size, width));
  norm_ = register_at(*this, head.norm, encoder_norm(width, config));
  const PartPlace place = place_of_part(*this, head.bias);
  bias_ = place.module.register_parameter(place.name, torch::zeros({config.vocab_size}));
  initialize(*dense_, config.initializer_range);
}

at::Tensor EncoderForMaskedLMImpl::states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                          const at::Tensor& token_type_ids, const at::Tensor& position_ids) {
  const auto output = body_(input_ids, attention_mask, token_type_ids, position_ids);
  return norm_(dense_->activated(output.last_hidden_state, activation_));
}

TokenHead EncoderForMaskedLMImpl::head() const { return {.weight = body_->word_embeddings(), .bias = bias_}; }

}  // namespace lockstep::models
