#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "attention.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/parallel/unit.hpp"

namespace lockstep::models {

/// The attention of encoder and decoder layers.
class BartAttentionImpl : public torch::nn::Module {
 public:
  BartAttentionImpl(std::int64_t width, std::int64_t heads, double dropout);

  /// Self-attention of `states`; with a cache, also on its content, to which they are appended.
  at::Tensor forward(const at::Tensor& states, const AttentionMask& mask, KeyValueCache* cache = nullptr,
                     std::size_t layer = 0);
  /// Attention of `states` on keys and values of other states.
  at::Tensor across(const at::Tensor& states, const KeyValueCache::Layer& others, const AttentionMask& mask);
  /// The keys and values of `states` for across().
  KeyValueCache::Layer keys_of(const at::Tensor& states);

 private:
  at::Tensor output(const at::Tensor& states, const KeyValueCache::Layer& keys, const AttentionMask& mask);

  std::int64_t heads_;
  double dropout_;
  torch::nn::Linear key_{nullptr}, value_{nullptr}, query_{nullptr}, output_{nullptr};
};
TORCH_MODULE(BartAttention);

/// The two linear layers of a layer, with the residual connection and the norm after it. Their names are
/// those of the layer itself, so this is a base class and not a submodule.
class BartFeedForward : public torch::nn::Module {
 protected:
  BartFeedForward(const BartConfig& config, std::int64_t inner);
  void register_feed_forward();
  at::Tensor feed_forward(const at::Tensor& states);
  at::Tensor dropped(const at::Tensor& states) const;

 private:
  std::string activation_;
  double dropout_, activation_dropout_;
  std::int64_t width_, inner_;
  torch::nn::Linear in_{nullptr}, out_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

class BartEncoderLayerImpl : public BartFeedForward, public Unit {
 public:
  explicit BartEncoderLayerImpl(const BartConfig& config);
  at::Tensor forward(const at::Tensor& states, const AttentionMask& mask);

 private:
  at::Tensor body(const at::Tensor& states, const AttentionMask& mask);

  BartAttention attention_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr};
};
TORCH_MODULE(BartEncoderLayer);

/// The context of a decoder's tokens.
struct BartContext {
  /// Keys and values of the encoder's states, one pair per layer.
  const KeyValueCache* source = nullptr;
  /// Mask of the source's padding.
  AttentionMask source_mask;
  /// Keys and values of earlier tokens, during generation.
  KeyValueCache* cache = nullptr;
};

class BartDecoderLayerImpl : public BartFeedForward, public Unit {
 public:
  explicit BartDecoderLayerImpl(const BartConfig& config);
  at::Tensor forward(const at::Tensor& states, const BartContext& context, std::size_t layer);
  KeyValueCache::Layer source_keys(const at::Tensor& states);

 private:
  KeyValueCache::Layer source_keys_body(const at::Tensor& states);
  at::Tensor body(const at::Tensor& states, const KeyValueCache::Layer& source,
                  const AttentionMask& source_mask, KeyValueCache* cache, std::size_t layer);

  BartAttention attention_{nullptr}, source_attention_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, source_norm_{nullptr};
};
TORCH_MODULE(BartDecoderLayer);

/// Normalized token and learned position embeddings: the first part of encoder and decoder. The token
/// embedding is shared and belongs to the body.
class BartSideImpl : public torch::nn::Module {
 public:
  BartSideImpl(const BartConfig& config, const torch::nn::Embedding& tokens);

 protected:
  at::Tensor embedded(const at::Tensor& ids, std::int64_t begin);
  torch::nn::ModuleList layers_{nullptr};
  void register_rest();

 private:
  double scale_, dropout_;
  std::int64_t places_count_, width_;
  torch::nn::Embedding tokens_{nullptr}, places_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

class BartEncoderImpl : public BartSideImpl {
 public:
  BartEncoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens);
  at::Tensor forward(const at::Tensor& ids, const AttentionMask& mask);
};
TORCH_MODULE(BartEncoder);

class BartDecoderImpl : public BartSideImpl {
 public:
  BartDecoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens);
  at::Tensor forward(const at::Tensor& ids, const BartContext& context);
  KeyValueCache source_keys(const at::Tensor& states);
};
TORCH_MODULE(BartDecoder);

/// Encoder and decoder with one token embedding.
class BartBodyImpl : public torch::nn::Module {
 public:
  explicit BartBodyImpl(const BartConfig& config);
  BartEncoder encoder{nullptr};
  BartDecoder decoder{nullptr};
  const at::Tensor& embedding() const { return shared_->weight; }

 private:
  torch::nn::Embedding shared_{nullptr};
};

}  // namespace lockstep::models
