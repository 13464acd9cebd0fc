#include "models/bart_layers.hpp"

#include <cmath>

namespace lockstep::models {
namespace {

using torch::nn::LayerNorm;

Linear linear(std::int64_t inputs, std::int64_t outputs, bool bias) {
  return Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

}  // namespace

BartAttentionImpl::BartAttentionImpl(const BartLayerOptions& options)
    : heads_(options.heads), dropout_(options.attention_dropout) {
  const auto projection = [&] { return linear(options.width, options.width, options.bias); };
  key_ = register_module("k_proj", projection());
  value_ = register_module("v_proj", projection());
  query_ = register_module("q_proj", projection());
  output_ = register_module("out_proj", projection());
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

LayerNorm BartLayer::register_norm(const std::string& name) {
  const auto norm = torch::nn::LayerNormOptions({options_.width}).elementwise_affine(options_.affine);
  return register_module(name, LayerNorm(norm));
}

void BartLayer::register_feed_forward() {
  in_ = register_module("fc1", linear(options_.width, options_.inner, options_.bias));
  out_ = register_module("fc2", linear(options_.inner, options_.width, options_.bias));
  norm_ = register_norm("final_layer_norm");
}

at::Tensor BartLayer::dropped(const at::Tensor& states) const {
  return at::dropout(states, options_.dropout, is_training());
}

at::Tensor BartLayer::feed_forward(const at::Tensor& states) {
  return with(states, norm_, [&](const at::Tensor& normed) {
    const at::Tensor inner = activate(options_.activation, in_(normed));
    return out_(at::dropout(inner, options_.activation_dropout, is_training()));
  });
}

BartEncoderLayerImpl::BartEncoderLayerImpl(const BartLayerOptions& options) : BartLayer(options) {
  attention_ = register_module("self_attn", BartAttention(options));
  attention_norm_ = register_norm("self_attn_layer_norm");
  register_feed_forward();
}

at::Tensor BartEncoderLayerImpl::forward(const at::Tensor& states, const AttentionMask& mask) {
  return through(*this, &BartEncoderLayerImpl::body, states, mask);
}

at::Tensor BartEncoderLayerImpl::body(const at::Tensor& states, const AttentionMask& mask) {
  const auto attention = [&](const at::Tensor& normed) { return attention_(normed, mask); };
  const at::Tensor result = feed_forward(with(states, attention_norm_, attention));
  if (result.scalar_type() != at::kHalf) return result;
  // As in transformers: float16 overflows here.
  constexpr double kMost = 65504 - 1000;
  return result.clamp(-kMost, kMost);
}

BartDecoderLayerImpl::BartDecoderLayerImpl(const BartLayerOptions& options) : BartLayer(options) {
  attention_ = register_module("self_attn", BartAttention(options));
  attention_norm_ = register_norm("self_attn_layer_norm");
  if (options.has_source) {
    source_attention_ = register_module("encoder_attn", BartAttention(options));
    source_norm_ = register_norm("encoder_attn_layer_norm");
  }
  register_feed_forward();
}

at::Tensor BartDecoderLayerImpl::forward(const at::Tensor& states, const BartContext& context,
                                         std::size_t layer) {
  const auto source = context.source ? context.source->layers.at(layer) : KeyValueCache::Layer();
  const auto body = &BartDecoderLayerImpl::body;
  // With a cache, a second run would append to it again.
  if (context.cache)
    return through_once(*this, body, states, context.mask, source, context.source_mask, context.cache, layer);
  return through(*this, body, states, context.mask, source, context.source_mask, context.cache, layer);
}

KeyValueCache::Layer BartDecoderLayerImpl::source_keys(const at::Tensor& states) {
  return through_once(*this, &BartDecoderLayerImpl::source_keys_body, states);
}

KeyValueCache::Layer BartDecoderLayerImpl::source_keys_body(const at::Tensor& states) {
  return source_attention_->keys_of(states);
}

at::Tensor BartDecoderLayerImpl::body(const at::Tensor& states, const AttentionMask& mask,
                                      const KeyValueCache::Layer& source, const AttentionMask& source_mask,
                                      KeyValueCache* cache, std::size_t layer) {
  at::Tensor next = with(states, attention_norm_,
                         [&](const at::Tensor& normed) { return attention_(normed, mask, cache, layer); });
  if (source_attention_) {
    next = with(next, source_norm_, [&](const at::Tensor& normed) {
      return source_attention_->across(normed, source, source_mask);
    });
  }
  return feed_forward(next);
}

at::Tensor unless_skipped(const at::Tensor& next, const at::Tensor& states, bool skipped) {
  return skipped ? at::where(at::zeros({}, next.options().dtype(at::kBool)), next, states) : next;
}

bool draw_skip(const torch::nn::Module& module, double probability) {
  return module.is_training() && probability > 0 &&
         at::rand({}).item<float>() < static_cast<float>(probability);
}

}  // namespace lockstep::models
