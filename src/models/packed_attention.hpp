#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::models {

/// Texts that lie one behind the other in a list of tokens: a row of several texts, or rows without their
/// padding. Each token attends to its own text alone, without a mask of all pairs of tokens.
struct PackedTexts {
  /// Where each text begins in the list, and its end: int32 [texts + 1], on the device.
  at::Tensor begins = {};
  /// The same on the host, which splits the list by it. Only for tensors there.
  std::vector<std::int64_t> lengths = {};
  /// The tokens of the list among those of all rows, int64; undefined: all of them.
  at::Tensor places = {};
  /// No text is longer.
  std::int64_t longest = 0;
  /// Only to tokens at or before it.
  bool causal = false;
  /// To so many tokens before and after it; none: to all.
  std::optional<std::int64_t> before = {}, after = {};
};

/// How the products of a query and the keys become weights.
struct AttentionWeights {
  double dropout = 0;
  /// None: one by the square root of the size of a head.
  std::optional<double> scale = {};
};

/// Attention within texts, of tensors [tokens, heads, size], where keys and values may have fewer heads.
/// Returns [tokens, heads, size]. On a GPU, LibTorch's kernel of FlashAttention for lists of texts, in 16
/// bits (heads of at most 256); on a CPU, LibTorch's attention of each text, and of each block of a window.
at::Tensor attend_list(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const PackedTexts& texts, const AttentionWeights& weights);

/// The same for [rows, heads, length, size]; returns [rows, length, heads * size]. Places of padding are 0.
at::Tensor attend_texts(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const PackedTexts& texts, const AttentionWeights& weights);

/// The heads of queries, and the size of each.
struct AttentionHeads {
  std::int64_t count = 0, size = 0;
};

/// The texts in rows [rows, tokens] whose positions begin anew with each text (see same_text_mask()). The
/// host waits for the number of texts.
PackedTexts texts_of_positions(const at::Tensor& position_ids);

/// The tokens of rows [rows, tokens] where a mask is not 0, a text for each row, which may be empty. None if
/// there are no such tokens, and for padding between tokens, which windows count. The host waits for the
/// number of tokens.
std::optional<PackedTexts> texts_of_mask(const at::Tensor& attention_mask);

/// attend_list() or a part of it.
using AttentionOfTexts =
    std::function<at::Tensor(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const PackedTexts& texts, const AttentionWeights& weights)>;

/// Compares results and gradients with LibTorch's attention by a mask in float64: texts of 3, 0 and 70
/// tokens, causal or not, with and without a window, of as many heads of keys as of queries and of half.
/// Also with dropout; random numbers stay. Throws Error that says how far apart they are.
void check_attention_of_texts(const AttentionOfTexts& attend, at::ScalarType dtype, const at::Device& device,
                              std::int64_t head_size);

/// The texts in rows whose `position_ids` begin anew with each text (see same_text_mask()), or null where a
/// mask is to be used: on a CPU where that is faster, which is so for short texts and rows; on a GPU unless
/// the model computes in 16 bits, by `weight` and autocast, and the kernel has proven itself (is_proven()).
/// On a GPU, the host waits for the number of texts; there is always a mask in RecordableWork.
std::shared_ptr<const PackedTexts> packed_texts(const at::Tensor& position_ids, const at::Tensor& weight,
                                                const AttentionHeads& heads);

/// Each row as a text, for layers that attend to `reach` tokens on a side; null as above, but the host waits
/// for nothing, so that RecordableWork has texts as well. `states` are [rows, tokens, ...].
std::shared_ptr<const PackedTexts> whole_rows(const at::Tensor& states, const at::Tensor& weight,
                                              const AttentionHeads& heads, std::int64_t reach);

/// Rows without their padding, where an `attention_mask` [rows, tokens] is 0; null as for packed_texts(),
/// where there are no texts (see texts_of_mask()), and always on a CPU, where a mask of rows is as fast.
std::shared_ptr<const PackedTexts> unpadded_texts(const at::Tensor& attention_mask, const at::Tensor& weight,
                                                  const AttentionHeads& heads);

/// The same texts, of which a token attends to `before` tokens before it and `after` tokens after it.
std::shared_ptr<const PackedTexts> with_window(const PackedTexts& texts, std::int64_t before,
                                               std::int64_t after);
/// The same texts, of which a token attends to those at or before it.
std::shared_ptr<const PackedTexts> causal_texts(const PackedTexts& texts);

}  // namespace lockstep::models
