#include "models/encoder_layers.hpp"

#include <ATen/ATen.h>

#include <memory>

#include "models/attention.hpp"
#include "models/encoder_form.hpp"
#include "models/modern_bert.hpp"

namespace lockstep::models {

using torch::nn::LayerNorm;

PartPlace place_of_part(torch::nn::Module& root, const std::string& name) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) return {root, name};
  const std::string first = name.substr(0, dot);
  const auto children = root.named_children();
  const auto* found = children.find(first);
  const auto next =
      found != nullptr ? *found : root.register_module(first, std::make_shared<torch::nn::Module>(first));
  return place_of_part(*next, name.substr(dot + 1));
}

LayerNorm encoder_norm(std::int64_t width, const EncoderConfig& config) {
  const bool has_bias = !encoder_form_of(config.model_type).is_modern || config.modern.norm_bias;
  return norm_of_rows(width, config.layer_norm_eps, has_bias);
}

std::int64_t embedding_width(const EncoderConfig& config) {
  return config.embedding_size > 0 ? config.embedding_size : config.hidden_size;
}

EncoderEmbeddingsImpl::EncoderEmbeddingsImpl(const EncoderConfig& config)
    : dropout_(config.hidden_dropout_prob) {
  const EncoderForm& form = encoder_form_of(config.model_type);
  const std::int64_t width = embedding_width(config);
  auto places = torch::nn::EmbeddingOptions(config.max_position_embeddings, width);
  if (form.offsets_positions) {
    padding_ = config.pad_token_id;
    places.padding_idx(padding_);
  }
  words_ = register_module(
      form.names.words,
      Embedding(torch::nn::EmbeddingOptions(config.vocab_size, width).padding_idx(config.pad_token_id)));
  if (!form.is_modern) positions_ = register_module("position_embeddings", Embedding(places));
  if (form.has_types)
    types_ = register_module("token_type_embeddings", Embedding(config.type_vocab_size, width));
  norm_ = register_module(form.names.embedding_norm, encoder_norm(width, config));
}

at::Tensor EncoderEmbeddingsImpl::places(const at::Tensor& ids, const at::Tensor& positions) const {
  if (positions.defined()) return padding_ ? positions + (*padding_ + 1) : positions;
  if (!padding_) return at::arange(ids.size(1), ids.options().dtype(at::kLong)).unsqueeze(0);
  const at::Tensor is_token = ids.ne(*padding_).to(at::kLong);
  return is_token.cumsum(1) * is_token + *padding_;
}

/// By one kernel; undefined where that does not do it.
at::Tensor EncoderEmbeddingsImpl::embedded_at_once(const kernels::EmbeddingIds& ids) const {
  const bool has_adapter =
      words_->has_adapter() || positions_->has_adapter() || (types_ && types_->has_adapter());
  const kernels::EmbeddingTables tables{
      .words = words_->weight, .places = positions_->weight, .types = types_ ? types_->weight : at::Tensor()};
  return !has_adapter && kernels::takes_embedding(ids, tables) ? kernels::embed_tokens(ids, tables)
                                                               : at::Tensor();
}

at::Tensor EncoderEmbeddingsImpl::forward(const at::Tensor& ids, const at::Tensor& types,
                                          const at::Tensor& positions) {
  const bool counts = types_ && types.defined() && types_->options.num_embeddings() > 1;
  at::Tensor embedded;
  if (positions_ && !positions.defined() && !padding_)
    embedded = embedded_at_once({.words = ids,
                                 .types = counts ? types : at::Tensor(),
                                 .padding = words_->options.padding_idx().value_or(-1)});
  if (!embedded.defined()) {
    embedded = words_(ids);
    if (types_) embedded = embedded + types_(counts ? types : at::zeros_like(ids));
    if (positions_) embedded = embedded + positions_(places(ids, positions));
  }
  return at::dropout(norm_(embedded), dropout_, is_training());
}

EncoderLayerImpl::EncoderLayerImpl(const EncoderConfig& config)
    : heads_(config.num_attention_heads),
      attention_dropout_(config.attention_probs_dropout_prob),
      dropout_(config.hidden_dropout_prob),
      activation_(config.hidden_act) {
  const EncoderForm& form = encoder_form_of(config.model_type);
  const EncoderLayerNames& names = form.names;
  attended_dropout_ = form.drops_attended ? dropout_ : 0;
  const auto width = config.hidden_size, inner = config.intermediate_size;
  query_ = register_at(*this, names.query, Linear(width, width));
  key_ = register_at(*this, names.key, Linear(width, width));
  value_ = register_at(*this, names.value, Linear(width, width));
  attended_ = register_at(*this, names.attended, Linear(width, width));
  attention_norm_ = register_at(*this, names.attention_norm, encoder_norm(width, config));
  inner_ = register_at(*this, names.inner, Linear(width, inner));
  outer_ = register_at(*this, names.outer, Linear(inner, width));
  output_norm_ = register_at(*this, names.output_norm, encoder_norm(width, config));
}

Norms EncoderLayerImpl::forward(const Norms& states, const AttentionMask& mask) {
  return through(*this, &EncoderLayerImpl::body, states, mask);
}

Norms EncoderLayerImpl::body(const Norms& states, const AttentionMask& mask) {
  const bool trains = is_training();
  const auto parts = packed_forward(states.back(), {query_, key_, value_});
  const at::Tensor attended = attend(split_heads(parts[0], heads_), split_heads(parts[1], heads_),
                                     split_heads(parts[2], heads_), mask, trains ? attention_dropout_ : 0.0);
  const Norms middle =
      normalize_sum(at::dropout(attended_(attended), attended_dropout_, trains), states, attention_norm_);
  const at::Tensor output = outer_(inner_->activated(middle.back(), activation_));
  return normalize_sum(at::dropout(output, dropout_, trains), middle, output_norm_);
}

}  // namespace lockstep::models
