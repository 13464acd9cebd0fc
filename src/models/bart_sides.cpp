#include "models/bart_sides.hpp"
#include "models/weights_dtype.hpp"

#include <cmath>

namespace lockstep::models {
namespace {

using torch::nn::LayerNorm;

/// Offset of positions in the files' embedding tables.
constexpr std::int64_t kFirstPlace = 2;

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

BartSideImpl::BartSideImpl(const BartConfig& config, const torch::nn::Embedding& tokens)
    : form_(form_of(config.model_type)),
      scale_(config.scale_embedding ? std::sqrt(static_cast<double>(config.d_model)) : 1.0),
      dropout_(config.dropout),
      positions_count_(config.max_position_embeddings),
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
    positions_ =
        register_module("embed_positions", torch::nn::Embedding(positions_count_ + kFirstPlace, width_));
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
  if (form_.positions == BartForm::sines) return sines_(positions, positions_count_, dtype);
  return positions_(positions + kFirstPlace);
}

at::Tensor BartSideImpl::embedded(const at::Tensor& ids, std::int64_t begin) {
  at::Tensor states = tokens_(ids) * scale_ + places(ids, begin);
  if (norm_) states = norm_(states);
  return at::dropout(states, dropout_, is_training());
}

BartEncoderImpl::BartEncoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens)
    : BartSideImpl(config, tokens), layerdrop_(config.encoder_layerdrop) {
  register_rest();
  const auto options = layer_options(config, config.encoder_attention_heads, config.encoder_ffn_dim);
  for (std::int64_t i = 0; i < config.encoder_layers; ++i)
    layers_->push_back(made_in_dtype(BartEncoderLayer(options)));
}

at::Tensor BartEncoderImpl::forward(const at::Tensor& ids, const AttentionMask& mask) {
  at::Tensor states = embedded(ids, 0);
  for (const auto& layer : *layers_) {
    const bool skipped = draw_skip(*this, layerdrop_);
    states = unless_skipped(layer->as<BartEncoderLayerImpl>()->forward(states, mask), states, skipped);
  }
  return finished(states);
}

BartDecoderImpl::BartDecoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens)
    : BartSideImpl(config, tokens), layerdrop_(config.decoder_layerdrop) {
  register_rest();
  const auto options = layer_options(config, config.decoder_attention_heads, config.decoder_ffn_dim);
  for (std::int64_t i = 0; i < config.decoder_layers; ++i)
    layers_->push_back(made_in_dtype(BartDecoderLayer(options)));
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
    return torch::nn::Embedding(
        torch::nn::EmbeddingOptions(tokens, config.d_model).padding_idx(config.pad_token_id));
  };
  const torch::nn::Embedding source = embedding(config.vocab_size);
  const bool shares = config.share_encoder_decoder_embeddings;
  if (shares) register_module("shared", source);
  encoder = register_module("encoder", BartEncoder(config, source));
  decoder =
      register_module("decoder", BartDecoder(config, shares ? source : embedding(config.decoder_vocab_size)));
}

}  // namespace lockstep::models
