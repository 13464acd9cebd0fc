#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"

namespace lockstep::models {

/// Sizes and options of a layer.
struct BartLayerOptions {
  std::int64_t width, heads, inner;
  std::string activation;
  double dropout = 0, attention_dropout = 0, activation_dropout = 0;
  bool norm_first = false;
  /// Biases of the linear layers, and parameters of the norms.
  bool bias = true, affine = true;
  /// A decoder's layer that also attends to an encoder.
  bool has_source = true;
};

/// The attention of encoder and decoder layers.
class BartAttentionImpl : public torch::nn::Module {
 public:
  explicit BartAttentionImpl(const BartLayerOptions& options);

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
  Linear key_{nullptr}, value_{nullptr}, query_{nullptr}, output_{nullptr};
};
TORCH_MODULE(BartAttention);

/// The two linear layers of a layer, and what its parts have in common: dropout, the residual connection, and
/// the norm before the part or after the sum. The names are those of the layer itself, so this is a base
/// class and not a submodule.
class BartLayer : public torch::nn::Module {
 protected:
  explicit BartLayer(const BartLayerOptions& options) : options_(options) {}
  torch::nn::LayerNorm register_norm(const std::string& name);
  void register_feed_forward();

  at::Tensor feed_forward(const at::Tensor& states);
  /// `states` plus what `part` makes of them.
  template <class Part>
  at::Tensor with(const at::Tensor& states, torch::nn::LayerNorm& norm, const Part& part) {
    if (options_.norm_first) return states + dropped(part(norm(states)));
    return norm(states + dropped(part(states)));
  }

 private:
  at::Tensor dropped(const at::Tensor& states) const;

  BartLayerOptions options_;
  Linear in_{nullptr}, out_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

class BartEncoderLayerImpl : public BartLayer, public Unit {
 public:
  explicit BartEncoderLayerImpl(const BartLayerOptions& options);
  at::Tensor forward(const at::Tensor& states, const AttentionMask& mask);

 private:
  at::Tensor body(const at::Tensor& states, const AttentionMask& mask);

  BartAttention attention_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr};
};
TORCH_MODULE(BartEncoderLayer);

/// The context of a decoder's tokens.
struct BartContext {
  /// The keys to which the tokens attend among themselves and in the cache.
  AttentionMask mask;
  /// Keys and values of the encoder's states, one pair per layer; null in a decoder without an encoder.
  const KeyValueCache* source = nullptr;
  /// Mask of the source's padding.
  AttentionMask source_mask = {};
  /// Keys and values of earlier tokens, during generation.
  KeyValueCache* cache = nullptr;
};

class BartDecoderLayerImpl : public BartLayer, public Unit {
 public:
  explicit BartDecoderLayerImpl(const BartLayerOptions& options);
  at::Tensor forward(const at::Tensor& states, const BartContext& context, std::size_t layer);
  KeyValueCache::Layer source_keys(const at::Tensor& states);

 private:
  KeyValueCache::Layer source_keys_body(const at::Tensor& states);
  at::Tensor body(const at::Tensor& states, const AttentionMask& mask, const KeyValueCache::Layer& source,
                  const AttentionMask& source_mask, KeyValueCache* cache, std::size_t layer);

  BartAttention attention_{nullptr}, source_attention_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, source_norm_{nullptr};
};
TORCH_MODULE(BartDecoderLayer);

/// Whether a layer of `module` is skipped: in training, with this probability, drawn as transformers draws it
/// (Fan et al., 2019: LayerDrop).
bool draw_skip(const torch::nn::Module& module, double probability);

/// `next`, the output of a layer for `states`, or `states` if it is skipped. The layer has been computed all
/// the same and gets gradients of zero: ranks that skip different layers exchange the same tensors.
at::Tensor unless_skipped(const at::Tensor& next, const at::Tensor& states, bool skipped);

}  // namespace lockstep::models
