#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::models {

/// [rows, length, heads * size] as [rows, heads, length, size], without a copy.
at::Tensor split_heads(const at::Tensor& states, std::int64_t heads);

/// The inverse of split_heads.
at::Tensor merge_heads(const at::Tensor& states);

/// What a query may look at, for attend().
struct AttentionMask {
  /// True or a number to be added, spread over [rows, heads, queries, keys]; undefined: everything.
  at::Tensor mask = {};
  /// Only keys at or before the query's own place. Not together with a mask.
  bool causal = false;
};

/// Attention over heads as split_heads makes them, by LibTorch's fused kernels; merged again.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionMask& mask, double dropout);

/// A mask for attend() from one of [rows, keys] that is 1 where there is a token and 0 where there is
/// padding. Undefined when it is undefined.
at::Tensor padding_mask(const at::Tensor& attention_mask);

/// A mask for attend() by which the tokens of a row see those of their own text alone: a text ends where
/// `position_ids`, [rows, tokens], do not go on by 1. Undefined where each row is one text.
at::Tensor same_text_mask(const at::Tensor& position_ids);

/// An activation under its name in Hugging Face's configurations: gelu, gelu_new, gelu_pytorch_tanh, relu,
/// silu, swish, tanh.
at::Tensor activate(const std::string& name, const at::Tensor& values);

/// The names that activate() knows.
inline constexpr std::initializer_list<const char*> kActivations = {
    "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"};

}  // namespace lockstep::models

namespace lockstep::models {

/// Keys and values that attention has computed for earlier tokens, a pair a layer, [rows, heads, tokens,
/// size].
struct KeyValueCache {
  struct Layer {
    at::Tensor key, value;
  };
  std::vector<Layer> layers;

  /// Tokens seen so far.
  std::int64_t length() const;
  /// Adds a layer's new keys and values behind the old ones, and puts all of them into `key` and `value`.
  void append(std::size_t layer, at::Tensor& key, at::Tensor& value);
  /// Row i becomes what row `rows[i]` was.
  void reorder(const at::Tensor& rows);
};

void visit_tensors_of(KeyValueCache::Layer& layer, const auto& visit) {
  visit(layer.key);
  visit(layer.value);
}

}  // namespace lockstep::models

namespace lockstep::models {

/// Draws new weights of linear layers and embeddings from a normal distribution and clears biases and
/// paddings, as transformers' models do; other modules keep theirs.
void initialize(torch::nn::Module& module, double spread);

}  // namespace lockstep::models
