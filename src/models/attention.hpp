#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "models/packed_attention.hpp"

namespace lockstep::models {

/// [rows, length, heads * size] as [rows, heads, length, size], without a copy.
at::Tensor split_heads(const at::Tensor& states, std::int64_t heads);

/// The inverse of split_heads.
at::Tensor merge_heads(const at::Tensor& states);

/// Which keys a query attends to, for attend().
struct AttentionMask {
  /// True, or a number to be added, broadcast over [rows, heads, queries, keys]; undefined: all keys.
  at::Tensor mask = {};
  /// Only keys at or before the query's position. Not together with a mask.
  bool causal = false;
  /// Instead of both: the texts that attend to themselves alone.
  std::shared_ptr<const PackedTexts> texts = {};
};

/// Attention over heads as returned by split_heads, with LibTorch's fused kernels; the result is merged.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionMask& mask, double dropout);

/// A mask for attend() from one of [rows, keys] that is 1 for tokens and 0 for padding. Undefined if that is
/// undefined.
at::Tensor padding_mask(const at::Tensor& attention_mask);

/// Tokens attend to earlier ones, but not to padding: a mask for attend() from one as padding_mask() takes,
/// which may be undefined.
AttentionMask causal_mask(const at::Tensor& attention_mask);

/// Tokens attend to earlier ones of their own text: see same_text_mask().
AttentionMask causal_mask_of_texts(const at::Tensor& position_ids);

/// What the tokens of a batch attend to: those of their own text by `position_ids`, and, with an
/// `attention_mask`, those that are not padding; either may be undefined. With one of them, texts are packed
/// where that is faster (see packed_texts()), otherwise there is a mask. `weight` is one of the model, for device and
/// dtype.
AttentionMask causal_attention(const at::Tensor& position_ids, const at::Tensor& attention_mask,
                               const at::Tensor& weight, const AttentionHeads& heads);
/// The same in both directions, but with an `attention_mask` the positions part no texts, as in transformers.
AttentionMask full_attention(const at::Tensor& position_ids, const at::Tensor& attention_mask,
                             const at::Tensor& weight, const AttentionHeads& heads);

/// The mask of tokens that follow `begin` others in a cache, of which the first call has any number and each
/// later one a single token a row. `attention_mask` is that of all tokens, or undefined.
AttentionMask causal_mask_after(std::int64_t begin, const at::Tensor& attention_mask);

/// The positions of `ids`, which follow `begin` tokens in a cache. With an `attention_mask` of all of them,
/// padding in front does not count; padding itself has position `of_padding`.
at::Tensor positions_after(std::int64_t begin, const at::Tensor& ids, const at::Tensor& attention_mask,
                           std::int64_t of_padding);

/// Throws UsageError, in the name of `model`, unless `ids` can follow `begin` tokens in a cache: one token a
/// row after the first call, at most `longest` in all. `attention_mask` is that of all tokens, or undefined:
/// padding does not count.
void check_next_tokens(const char* model, std::int64_t begin, const at::Tensor& ids,
                       const at::Tensor& attention_mask, std::int64_t longest);

/// Throws UsageError, in the name of `model`, unless `input_ids` are [rows, tokens], with at most `longest`
/// tokens or with `position_ids` of the same shape below `longest`. Positions on a GPU are not read: the host
/// would wait for it in every step.
void check_tokens(const char* model, const at::Tensor& input_ids, const at::Tensor& position_ids,
                  std::int64_t longest);

/// A mask for attend() with which the tokens of a row only attend to their own text: a new text starts where
/// `position_ids`, [rows, tokens], do not increase by 1. On the CPU it is undefined if each row is one text,
/// for which attention without a mask is faster.
at::Tensor same_text_mask(const at::Tensor& position_ids);

/// An activation by its name in Hugging Face's configurations: gelu, gelu_new, gelu_pytorch_tanh, relu, silu,
/// swish, tanh.
at::Tensor activate(const std::string& name, const at::Tensor& values);

/// activate(gate) * up, of a gated feed-forward layer. Without `up`, `gate` has both side by side. In float16
/// and bfloat16 on a GPU by one fused kernel if the activation is a GELU or silu.
at::Tensor activate_gate(const std::string& name, const at::Tensor& gate, const at::Tensor& up = {});

/// The names that activate() supports.
inline constexpr std::initializer_list<const char*> kActivations = {
    "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"};

}  // namespace lockstep::models

namespace lockstep::models {

/// Keys and values of earlier tokens, one pair per layer, [rows, heads, tokens, size].
struct KeyValueCache {
  struct Layer {
    at::Tensor key, value;
  };
  std::vector<Layer> layers;
  /// The tokens themselves, [rows, tokens], for models that may have to begin again.
  at::Tensor tokens;

  /// Number of tokens so far.
  std::int64_t length() const;
  /// Appends a layer's new keys and values to the old ones, and sets `key` and `value` to all of them.
  void append(std::size_t layer, at::Tensor& key, at::Tensor& value);
  /// Row i becomes what row `rows[i]` was.
  void reorder(const at::Tensor& rows);
};

void visit_tensors_of(KeyValueCache::Layer& layer, const auto& visit) {
  if (layer.key.defined()) visit(layer.key);
  if (layer.value.defined()) visit(layer.value);
}

}  // namespace lockstep::models

namespace lockstep::models {

/// Initializes linear layers and embeddings from a normal distribution, and sets biases and paddings to zero,
/// as transformers' models do; other modules are unchanged.
void initialize(torch::nn::Module& module, double spread);

}  // namespace lockstep::models
