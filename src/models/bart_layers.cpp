#include "bart_layers.hpp"

#include <cmath>

#include "lockstep/parallel/sharded_init.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::Linear;

/// Offset of positions in the files' embedding tables.
constexpr std::int64_t kFirstPlace = 2;

LayerNorm bart_norm(std::int64_t width) { return LayerNorm(torch::nn::LayerNormOptions({width})); }

}  // namespace

BartAttentionImpl::BartAttentionImpl(std::int64_t width, std::int64_t heads, double dropout)
    : heads_(heads), dropout_(dropout) {
  key_ = register_module("k_proj", Linear(width, width));
  value_ = register_module("v_proj", Linear(width, width));
  query_ = register_module("q_proj", Linear(width, width));
  output_ = register_module("out_proj", Linear(width, width));
}

KeyValueCache::Layer BartAttentionImpl::keys_of(const at::Tensor& states) {
  return {split_heads(key_(states), heads_), split_heads(value_(states), heads_)};
}

at::Tensor BartAttentionImpl::output(const at::Tensor& states, const KeyValueCache::Layer& keys,
                                     const AttentionMask& mask) {
  const double dropout = is_training() ? dropout_ : 0.0;
  return output_(attend(split_heads(query_(states), heads_), keys.key, keys.value, mask, dropout));
}

at::Tensor BartAttentionImpl::forward(const at::Tensor& states, const AttentionMask& mask,
                                      KeyValueCache* cache, std::size_t layer) {
  auto keys = keys_of(states);
  if (cache) cache->append(layer, keys.key, keys.value);
  return output(states, keys, mask);
}

at::Tensor BartAttentionImpl::across(const at::Tensor& states, const KeyValueCache::Layer& others,
                                     const AttentionMask& mask) {
  return output(states, others, mask);
}

BartFeedForward::BartFeedForward(const BartConfig& config, std::int64_t inner)
    : activation_(config.activation_function),
      dropout_(config.dropout),
      activation_dropout_(config.activation_dropout),
      width_(config.d_model),
      inner_(inner) {}

void BartFeedForward::register_feed_forward() {
  in_ = register_module("fc1", Linear(width_, inner_));
  out_ = register_module("fc2", Linear(inner_, width_));
  norm_ = register_module("final_layer_norm", bart_norm(width_));
}

at::Tensor BartFeedForward::dropped(const at::Tensor& states) const {
  return at::dropout(states, dropout_, is_training());
}

at::Tensor BartFeedForward::feed_forward(const at::Tensor& states) {
  const at::Tensor inner =
      at::dropout(activate(activation_, in_(states)), activation_dropout_, is_training());
  return norm_(states + dropped(out_(inner)));
}

BartEncoderLayerImpl::BartEncoderLayerImpl(const BartConfig& config)
    : BartFeedForward(config, config.encoder_ffn_dim) {
  attention_ = register_module(
      "self_attn", BartAttention(config.d_model, config.encoder_attention_heads, config.attention_dropout));
  attention_norm_ = register_module("self_attn_layer_norm", bart_norm(config.d_model));
  register_feed_forward();
}

at::Tensor BartEncoderLayerImpl::forward(const at::Tensor& states, const AttentionMask& mask) {
  return through(*this, &BartEncoderLayerImpl::body, states, mask);
}

at::Tensor BartEncoderLayerImpl::body(const at::Tensor& states, const AttentionMask& mask) {
  return feed_forward(attention_norm_(states + dropped(attention_(states, mask))));
}

BartDecoderLayerImpl::BartDecoderLayerImpl(const BartConfig& config)
    : BartFeedForward(config, config.decoder_ffn_dim) {
  const auto attention = [&] {
    return BartAttention(config.d_model, config.decoder_attention_heads, config.attention_dropout);
  };
  attention_ = register_module("self_attn", attention());
  attention_norm_ = register_module("self_attn_layer_norm", bart_norm(config.d_model));
  source_attention_ = register_module("encoder_attn", attention());
  source_norm_ = register_module("encoder_attn_layer_norm", bart_norm(config.d_model));
  register_feed_forward();
}

at::Tensor BartDecoderLayerImpl::forward(const at::Tensor& states, const BartContext& context,
                                         std::size_t layer) {
  return through(*this, &BartDecoderLayerImpl::body, states, context.source->layers.at(layer),
                 context.source_mask, context.cache, layer);
}

KeyValueCache::Layer BartDecoderLayerImpl::source_keys(const at::Tensor& states) {
  return through_once(*this, &BartDecoderLayerImpl::source_keys_body, states);
}

KeyValueCache::Layer BartDecoderLayerImpl::source_keys_body(const at::Tensor& states) {
  return source_attention_->keys_of(states);
}

at::Tensor BartDecoderLayerImpl::body(const at::Tensor& states, const KeyValueCache::Layer& source,
                                      const AttentionMask& source_mask, KeyValueCache* cache,
                                      std::size_t layer) {
  // A single token may attend to everything in the cache.
  const AttentionMask before{.causal = states.size(1) > 1};
  at::Tensor next = attention_norm_(states + dropped(attention_(states, before, cache, layer)));
  next = source_norm_(next + dropped(source_attention_->across(next, source, source_mask)));
  return feed_forward(next);
}

BartSideImpl::BartSideImpl(const BartConfig& config, const Embedding& tokens)
    : scale_(config.scale_embedding ? std::sqrt(static_cast<double>(config.d_model)) : 1.0),
      dropout_(config.dropout),
      places_count_(config.max_position_embeddings),
      width_(config.d_model),
      tokens_(tokens) {
  register_module("embed_tokens", tokens_);
}

void BartSideImpl::register_rest() {
  places_ = register_module("embed_positions", Embedding(places_count_ + kFirstPlace, width_));
  layers_ = register_module("layers", torch::nn::ModuleList());
  norm_ = register_module("layernorm_embedding", bart_norm(width_));
}

at::Tensor BartSideImpl::embedded(const at::Tensor& ids, std::int64_t begin) {
  const std::int64_t first = begin + kFirstPlace;
  const at::Tensor places = at::arange(first, first + ids.size(1), ids.options().dtype(at::kLong));
  const at::Tensor states = norm_(tokens_(ids) * scale_ + places_(places));
  return at::dropout(states, dropout_, is_training());
}

BartEncoderImpl::BartEncoderImpl(const BartConfig& config, const Embedding& tokens)
    : BartSideImpl(config, tokens) {
  register_rest();
  for (std::int64_t i = 0; i < config.encoder_layers; ++i) layers_->push_back(made(BartEncoderLayer(config)));
}

at::Tensor BartEncoderImpl::forward(const at::Tensor& ids, const AttentionMask& mask) {
  at::Tensor states = embedded(ids, 0);
  for (const auto& layer : *layers_) states = layer->as<BartEncoderLayerImpl>()->forward(states, mask);
  return states;
}

BartDecoderImpl::BartDecoderImpl(const BartConfig& config, const Embedding& tokens)
    : BartSideImpl(config, tokens) {
  register_rest();
  for (std::int64_t i = 0; i < config.decoder_layers; ++i) layers_->push_back(made(BartDecoderLayer(config)));
}

at::Tensor BartDecoderImpl::forward(const at::Tensor& ids, const BartContext& context) {
  at::Tensor states = embedded(ids, context.cache ? context.cache->length() : 0);
  std::size_t number = 0;
  for (const auto& layer : *layers_) {
    states = layer->as<BartDecoderLayerImpl>()->forward(states, context, number++);
  }
  return states;
}

KeyValueCache BartDecoderImpl::source_keys(const at::Tensor& states) {
  KeyValueCache keys;
  for (const auto& layer : *layers_)
    keys.layers.push_back(layer->as<BartDecoderLayerImpl>()->source_keys(states));
  return keys;
}

BartBodyImpl::BartBodyImpl(const BartConfig& config) {
  shared_ = register_module(
      "shared",
      Embedding(
          torch::nn::EmbeddingOptions(config.vocab_size, config.d_model).padding_idx(config.pad_token_id)));
  encoder = register_module("encoder", BartEncoder(config, shared_));
  decoder = register_module("decoder", BartDecoder(config, shared_));
}

}  // namespace lockstep::models
