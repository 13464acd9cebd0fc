#include "bart_layers.hpp"

#include <cmath>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::Linear;

/// Offset of positions in the files' embedding tables.
constexpr std::int64_t kFirstPlace = 2;

constexpr BartForm kForms[] = {
    {"bart", "BART", "BartForConditionalGeneration", false, true, false, true, BartForm::learned, false},
    {"mbart", "mBART", "MBartForConditionalGeneration", true, true, true, true, BartForm::learned, true},
    {"m2m_100", "M2M100", "M2M100ForConditionalGeneration", true, false, true, false,
     BartForm::sines_without_padding, false},
    {"marian", "Marian", "MarianMTModel", false, false, false, true, BartForm::sines, false},
};

Linear linear(std::int64_t inputs, std::int64_t outputs, bool bias) {
  return Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

}  // namespace

const BartForm& form_of(const std::string& model_type) {
  for (const auto& form : kForms) {
    if (form.model_type == model_type) return form;
  }
  throw UsageError("BartConfig's model_type is '" + model_type +
                   "', expected bart, mbart, m2m_100 or marian");
}

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

BartSideImpl::BartSideImpl(const BartConfig& config, const Embedding& tokens)
    : form_(form_of(config.model_type)),
      scale_(config.scale_embedding ? std::sqrt(static_cast<double>(config.d_model)) : 1.0),
      dropout_(config.dropout),
      places_count_(config.max_position_embeddings),
      width_(config.d_model),
      padding_(config.pad_token_id),
      tokens_(tokens) {
  register_module("embed_tokens", tokens_);
  if (form_.positions == BartForm::sines) sines_ = Sinusoids::of_marian(width_);
  if (form_.positions == BartForm::sines_without_padding) sines_ = Sinusoids::of_m2m100(width_, padding_);
}

void BartSideImpl::register_rest() {
  const auto norm = [&] { return LayerNorm(torch::nn::LayerNormOptions({width_})); };
  if (form_.positions == BartForm::learned)
    places_ = register_module("embed_positions", Embedding(places_count_ + kFirstPlace, width_));
  layers_ = register_module("layers", torch::nn::ModuleList());
  if (form_.normalized_embeddings) norm_ = register_module("layernorm_embedding", norm());
  if (form_.final_norm) last_norm_ = register_module("layer_norm", norm());
}

at::Tensor BartSideImpl::places(const at::Tensor& ids, std::int64_t begin) {
  const std::int64_t length = begin + ids.size(1);
  const auto dtype = tokens_->weight.scalar_type();
  if (form_.positions == BartForm::sines_without_padding) {
    // Padding has the position of the padding token, whose vector is zero.
    const at::Tensor mask = ids.ne(padding_).to(at::kLong);
    return sines_((mask.cumsum(1) + begin) * mask + padding_, padding_ + 1 + length, dtype);
  }
  const at::Tensor positions = at::arange(begin, length, ids.options().dtype(at::kLong));
  if (form_.positions == BartForm::sines) return sines_(positions, places_count_, dtype);
  return places_(positions + kFirstPlace);
}

at::Tensor BartSideImpl::embedded(const at::Tensor& ids, std::int64_t begin) {
  at::Tensor states = tokens_(ids) * scale_ + places(ids, begin);
  if (norm_) states = norm_(states);
  return at::dropout(states, dropout_, is_training());
}

namespace {

BartLayerOptions layer_options(const BartConfig& config, std::int64_t heads, std::int64_t inner) {
  return {.width = config.d_model,
          .heads = heads,
          .inner = inner,
          .activation = config.activation_function,
          .dropout = config.dropout,
          .attention_dropout = config.attention_dropout,
          .activation_dropout = config.activation_dropout,
          .norm_first = form_of(config.model_type).norm_first};
}

}  // namespace

BartEncoderImpl::BartEncoderImpl(const BartConfig& config, const Embedding& tokens)
    : BartSideImpl(config, tokens), layerdrop_(config.encoder_layerdrop) {
  register_rest();
  const auto options = layer_options(config, config.encoder_attention_heads, config.encoder_ffn_dim);
  for (std::int64_t i = 0; i < config.encoder_layers; ++i)
    layers_->push_back(made(BartEncoderLayer(options)));
}

at::Tensor BartEncoderImpl::forward(const at::Tensor& ids, const AttentionMask& mask) {
  at::Tensor states = embedded(ids, 0);
  for (const auto& layer : *layers_) {
    const bool skipped = draw_skip(*this, layerdrop_);
    states = unless_skipped(layer->as<BartEncoderLayerImpl>()->forward(states, mask), states, skipped);
  }
  return finished(states);
}

BartDecoderImpl::BartDecoderImpl(const BartConfig& config, const Embedding& tokens)
    : BartSideImpl(config, tokens), layerdrop_(config.decoder_layerdrop) {
  register_rest();
  const auto options = layer_options(config, config.decoder_attention_heads, config.decoder_ffn_dim);
  for (std::int64_t i = 0; i < config.decoder_layers; ++i)
    layers_->push_back(made(BartDecoderLayer(options)));
}

at::Tensor BartDecoderImpl::forward(const at::Tensor& ids, const BartContext& context) {
  at::Tensor states = embedded(ids, context.cache ? context.cache->length() : 0);
  std::size_t number = 0;
  for (const auto& layer : *layers_) {
    const bool skipped = draw_skip(*this, layerdrop_);
    states = unless_skipped(layer->as<BartDecoderLayerImpl>()->forward(states, context, number++), states,
                            skipped);
  }
  return finished(states);
}

KeyValueCache BartDecoderImpl::source_keys(const at::Tensor& states) {
  KeyValueCache keys;
  for (const auto& layer : *layers_)
    keys.layers.push_back(layer->as<BartDecoderLayerImpl>()->source_keys(states));
  return keys;
}

BartBodyImpl::BartBodyImpl(const BartConfig& config) {
  const auto embedding = [&](std::int64_t tokens) {
    return Embedding(torch::nn::EmbeddingOptions(tokens, config.d_model).padding_idx(config.pad_token_id));
  };
  const Embedding source = embedding(config.vocab_size);
  const bool shares = config.share_encoder_decoder_embeddings;
  if (shares) register_module("shared", source);
  encoder = register_module("encoder", BartEncoder(config, source));
  decoder =
      register_module("decoder", BartDecoder(config, shares ? source : embedding(config.decoder_vocab_size)));
}

}  // namespace lockstep::models
