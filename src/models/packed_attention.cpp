#include "models/packed_attention.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

/// Measured on CPUs: a text or block of its own costs as much as this many products of one element.
constexpr std::int64_t kProductsOfText = 600'000;
constexpr std::int64_t kLargestHead = 256;

/// Texts with these boundaries, of which none is longer than `longest`.
PackedTexts texts_between(const at::Tensor& begins, std::int64_t longest) {
  PackedTexts texts;
  texts.begins = begins.to(at::kInt);
  texts.longest = longest;
  if (!begins.is_cpu()) return texts;
  const auto* first = texts.begins.const_data_ptr<std::int32_t>();
  texts.lengths.assign(first, first + texts.begins.numel());
  std::adjacent_difference(texts.lengths.begin(), texts.lengths.end(), texts.lengths.begin());
  texts.lengths.erase(texts.lengths.begin());
  return texts;
}

at::Tensor repeated_key_heads(const at::Tensor& keys, std::int64_t heads) {
  const auto times = heads / keys.size(1);
  if (times == 1) return keys;
  return keys.unsqueeze(2).expand({-1, -1, times, -1}).flatten(1, 2);
}

/// One text, [1, heads, tokens, size], of which each token attends to those near it: blocks of queries with
/// the keys that they reach.
at::Tensor attend_in_blocks(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const PackedTexts& texts, const AttentionWeights& weights) {
  const auto length = query.size(2);
  const auto before = std::min(texts.before.value_or(length), length);
  const auto after = texts.causal ? 0 : std::min(texts.after.value_or(length), length);
  const auto block = std::max<std::int64_t>(before + after, 1);
  const at::Tensor places = at::arange(length, at::TensorOptions(at::kLong).device(query.device()));
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = 0; begin < length; begin += block) {
    const auto count = std::min(block, length - begin);
    const auto first = std::max<std::int64_t>(begin - before, 0);
    const auto keys = std::min(begin + count + after, length) - first;
    const at::Tensor distance =
        places.narrow(0, first, keys).unsqueeze(0) - places.narrow(0, begin, count).unsqueeze(1);
    const at::Tensor near = distance.ge(-before).logical_and(distance.le(after));
    parts.push_back(at::scaled_dot_product_attention(
        query.narrow(2, begin, count), key.narrow(2, first, keys), value.narrow(2, first, keys), near,
        weights.dropout, /*is_causal=*/false, weights.scale));
  }
  return at::cat(parts, 2);
}

bool has_far_tokens(const PackedTexts& texts, std::int64_t length) {
  const bool far_before = texts.before && length > *texts.before + 1;
  const bool far_after = !texts.causal && texts.after && length > *texts.after + 1;
  return far_before || far_after;
}

/// Of the same form as LibTorch's kernel, for CPUs.
at::Tensor attend_by_text(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const PackedTexts& texts, const AttentionWeights& weights) {
  const auto& lengths = texts.lengths;
  const auto of_texts = [&](const at::Tensor& states) {
    return states.transpose(0, 1).unsqueeze(0).split_with_sizes(lengths, 2);
  };
  const auto queries = of_texts(query), keys = of_texts(repeated_key_heads(key, query.size(1))),
             values = of_texts(repeated_key_heads(value, query.size(1)));
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    if (lengths[i] == 0) continue;
    parts.push_back(has_far_tokens(texts, lengths[i])
                        ? attend_in_blocks(queries[i], keys[i], values[i], texts, weights)
                        : at::scaled_dot_product_attention(queries[i], keys[i], values[i], {},
                                                           weights.dropout, texts.causal, weights.scale));
  }
  return at::cat(parts, 2).squeeze(0).transpose(0, 1);
}

/// Autocast does not cast for LibTorch's kernel, and queries and keys may come from a norm in 32 bits. As of
/// LibTorch's attention under autocast, the result has 16 bits.
at::Tensor attend_by_flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const PackedTexts& texts, const AttentionWeights& weights) {
  const auto dtype = kernels::fused_dtype(value).value_or(value.scalar_type());
  std::optional<c10::SymInt> before, after;
  if (texts.before) before = *texts.before;
  if (texts.after) after = *texts.after;
  // A window has two sides; -1: as far as the text goes.
  if (before && !after) after = texts.causal ? 0 : -1;
  if (after && !before) before = -1;
  return std::get<0>(at::_flash_attention_forward_symint(
      query.to(dtype), key.to(dtype), value.to(dtype), texts.begins, texts.begins, texts.longest,
      texts.longest, weights.dropout, texts.causal, /*return_debug_mask=*/false, weights.scale, before,
      after));
}

/// Whether LibTorch's kernel for lists of texts is used by a model with this weight.
bool uses_flash(const at::Tensor& weight, std::int64_t head_size) {
  const auto dtype = kernels::fused_dtype(weight);
  if (!dtype || head_size > kLargestHead || head_size % 8 != 0) return false;
  const auto device = weight.device();
  return kernels::is_proven(
      fmt::format("attention of packed texts, heads of {} in {}", head_size, c10::toString(*dtype)), device,
      [=] { check_attention_of_texts(attend_by_flash, *dtype, device, head_size); });
}

/// Pairs of tokens that are multiplied, in texts of these lengths.
std::int64_t pairs_of(const std::vector<std::int64_t>& lengths, std::int64_t reach) {
  std::int64_t pairs = 0;
  for (const auto length : lengths) pairs += length * (reach > 0 ? std::min(length, 3 * reach) : length);
  return pairs;
}

/// Attention calls of its own for each text, or block of a window.
std::int64_t calls_of(const std::vector<std::int64_t>& lengths, std::int64_t reach) {
  std::int64_t calls = 0;
  for (const auto length : lengths) calls += reach > 0 ? (length + reach - 1) / reach : 1;
  return calls;
}

/// Texts in rows of so many tokens.
struct Rows {
  std::int64_t count, length;
};

bool is_faster_by_text(const std::vector<std::int64_t>& lengths, const Rows& rows,
                       const AttentionHeads& heads, std::int64_t reach = 0) {
  const auto saved = rows.count * rows.length * rows.length - pairs_of(lengths, reach);
  return heads.count * heads.size * saved > kProductsOfText * calls_of(lengths, reach);
}

/// Whether the padding of each row is in front or at the end: windows count it between tokens.
bool has_padding_at_ends(const at::Tensor& attention_mask) {
  const at::Tensor shown = at::constant_pad_nd(attention_mask.ne(0), {1, 0}).to(at::kLong);
  return shown.diff().eq(1).sum(1).le(1).all().item<bool>();
}

/// Places in the rows, one behind the other, where a text begins; the first token of each row always does.
at::Tensor begins_in(const at::Tensor& position_ids) {
  at::Tensor begins = at::ones_like(position_ids, at::TensorOptions(at::kBool));
  const auto length = position_ids.size(1);
  if (length > 1) begins.narrow(1, 1, length - 1).copy_(position_ids.diff().ne(1));
  return begins.flatten().nonzero().squeeze(1);
}

/// The random numbers of a device are afterwards what they were before.
class KeptRandomNumbers {
 public:
  explicit KeptRandomNumbers(const at::Device& device)
      : generator_(at::globalContext().defaultGenerator(device)), state_(taken()) {}
  ~KeptRandomNumbers() { put_back(); }
  KeptRandomNumbers(const KeptRandomNumbers&) = delete;
  KeptRandomNumbers& operator=(const KeptRandomNumbers&) = delete;

  void put_back() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Tensor taken() {
    const std::lock_guard lock(generator_.mutex());
    return generator_.get_state();
  }

  at::Generator generator_;
  at::Tensor state_;
};

/// Compares `attend` with attention by a mask `shown`, of which `kept` [heads, queries, keys] are not
/// dropped.
void compare_with_mask(const std::function<at::Tensor(const kernels::Tensors& in)>& attend,
                       const kernels::Tensors& inputs, const at::Tensor& shown, const at::Tensor& factors) {
  const auto heads = inputs[0].size(1);
  const auto turned = [&](const at::Tensor& states) {
    return repeated_key_heads(states, heads).transpose(0, 1);
  };
  kernels::compare({.inputs = inputs,
                    .fused = [&](const kernels::Tensors& in) { return kernels::Tensors{attend(in)}; },
                    .reference =
                        [&](const kernels::Tensors& in) {
                          const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(2)));
                          const at::Tensor products =
                              at::matmul(turned(in[0]), turned(in[1]).transpose(1, 2)) * scale;
                          at::Tensor weights =
                              products.masked_fill(shown.logical_not(), -INFINITY).softmax(-1);
                          if (factors.defined()) weights = weights * factors;
                          return kernels::Tensors{at::matmul(weights, turned(in[2])).transpose(0, 1)};
                        }});
}

/// What is dropped is seen by values that are the columns of an identity; the same numbers drop it again.
void check_dropout_of_texts(const AttentionOfTexts& attend, at::ScalarType dtype, const at::Device& device,
                            std::int64_t head_size) {
  constexpr std::int64_t kTokens = 11, kHeads = 4, kFirst = 3;
  constexpr double kRate = 0.5;
  const at::Tensor places = at::arange(kTokens, at::TensorOptions(at::kLong).device(device));
  const at::Tensor text = places.ge(kFirst), in_text = places - text.to(at::kLong) * kFirst;
  PackedTexts texts =
      texts_between(at::tensor({0, 3, 3, 11}, at::TensorOptions(at::kInt)).to(device), kTokens - kFirst);
  texts.causal = true;
  const at::Tensor shown = text.unsqueeze(0).eq(text.unsqueeze(1)).tril();
  const auto waves = [&](double phase) {
    return kernels::waves({kTokens, kHeads, head_size}, dtype, device, phase);
  };
  const at::Tensor query = waves(0), key = waves(1);
  const at::Tensor identity = at::one_hot(in_text, head_size).to(dtype).unsqueeze(1).expand({-1, kHeads, -1});
  KeptRandomNumbers numbers(device);
  const auto dropped = [&](const kernels::Tensors& in) {
    return attend(in[0], in[1], in[2], texts, {.dropout = kRate});
  };
  const at::Tensor kept = dropped({query, key, identity.contiguous()})
                              .detach()
                              .ne(0)
                              .transpose(0, 1)
                              .index_select(2, in_text)
                              .logical_and(shown);
  const auto share = kept.sum().item<double>() / (shown.sum().item<double>() * kHeads);
  if (!(share > kRate / 2 && share < 1.5 * kRate))
    throw Error(fmt::format("{:.2f} of the weights are left at a dropout of {}", share, kRate));
  numbers.put_back();
  compare_with_mask(dropped, {query, key, waves(2)}, shown, kept.to(at::kDouble) / (1 - kRate));
}

}  // namespace

at::Tensor attend_list(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const PackedTexts& texts, const AttentionWeights& weights) {
  if (query.is_cuda()) return attend_by_flash(query, key, value, texts, weights);
  return attend_by_text(query, key, value, texts, weights);
}

at::Tensor attend_texts(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const PackedTexts& texts, const AttentionWeights& weights) {
  const auto rows = query.size(0), length = query.size(2);
  const auto listed = [&](const at::Tensor& states) {
    const at::Tensor all = states.transpose(1, 2).flatten(0, 1);
    return texts.places.defined() ? all.index_select(0, texts.places) : all;
  };
  at::Tensor attended = attend_list(listed(query), listed(key), listed(value), texts, weights).flatten(1);
  if (texts.places.defined())
    attended = attended.new_zeros({rows * length, attended.size(1)}).index_copy(0, texts.places, attended);
  return attended.view({rows, length, -1});
}

PackedTexts texts_of_positions(const at::Tensor& position_ids) {
  return texts_between(at::constant_pad_nd(begins_in(position_ids), {0, 1}, position_ids.numel()),
                       position_ids.size(1));
}

std::optional<PackedTexts> texts_of_mask(const at::Tensor& attention_mask) {
  if (!has_padding_at_ends(attention_mask)) return std::nullopt;
  const at::Tensor places = attention_mask.flatten().nonzero().squeeze(1);
  if (places.numel() == 0) return std::nullopt;
  PackedTexts texts = texts_between(at::constant_pad_nd(attention_mask.ne(0).sum(1).cumsum(0), {1, 0}),
                                    attention_mask.size(1));
  texts.places = places;
  return texts;
}

void check_attention_of_texts(const AttentionOfTexts& attend, at::ScalarType dtype, const at::Device& device,
                              std::int64_t head_size) {
  constexpr std::int64_t kTokens = 73, kHeads = 4, kReach = 8;
  const at::Tensor places = at::arange(kTokens, at::TensorOptions(at::kLong).device(device));
  const at::Tensor text = places.ge(3), distance = places.unsqueeze(1) - places.unsqueeze(0);
  PackedTexts texts =
      texts_between(at::tensor({0, 3, 3, 73}, at::TensorOptions(at::kInt)).to(device), kTokens - 3);
  const auto check = [&](std::int64_t key_heads) {
    at::Tensor shown = text.unsqueeze(0).eq(text.unsqueeze(1));
    if (texts.causal) shown = shown.logical_and(distance.ge(0));
    if (texts.before) shown = shown.logical_and(distance.le(kReach)).logical_and(distance.ge(-kReach));
    const auto waves = [&](std::int64_t heads, double phase) {
      return kernels::waves({kTokens, heads, head_size}, dtype, device, phase);
    };
    const auto fused = [&](const kernels::Tensors& in) { return attend(in[0], in[1], in[2], texts, {}); };
    compare_with_mask(fused, {waves(kHeads, 0), waves(key_heads, 1), waves(key_heads, 2)}, shown, {});
  };
  for (const bool causal : {true, false}) {
    for (const bool has_window : {true, false}) {
      texts.causal = causal;
      texts.before = texts.after = std::nullopt;
      if (has_window) texts.before = kReach;
      if (has_window && !causal) texts.after = kReach;
      for (const auto key_heads : {kHeads / 2, kHeads}) check(key_heads);
    }
  }
  check_dropout_of_texts(attend, dtype, device, head_size);
}

std::shared_ptr<const PackedTexts> packed_texts(const at::Tensor& position_ids, const at::Tensor& weight,
                                                const AttentionHeads& heads) {
  if (position_ids.numel() == 0 || comm::RecordableWork::is_here()) return nullptr;
  const bool is_on_cpu = position_ids.is_cpu();
  if (!is_on_cpu && !uses_flash(weight, heads.size)) return nullptr;
  PackedTexts texts = texts_of_positions(position_ids);
  const Rows rows{position_ids.size(0), position_ids.size(1)};
  if (is_on_cpu && !is_faster_by_text(texts.lengths, rows, heads)) return nullptr;
  return std::make_shared<const PackedTexts>(std::move(texts));
}

std::shared_ptr<const PackedTexts> whole_rows(const at::Tensor& states, const at::Tensor& weight,
                                              const AttentionHeads& heads, std::int64_t reach) {
  const Rows rows{states.size(0), states.size(1)};
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows.count), rows.length);
  const bool is_used =
      weight.is_cpu() ? is_faster_by_text(lengths, rows, heads, reach) : uses_flash(weight, heads.size);
  if (!is_used) return nullptr;
  const at::Tensor numbers = at::arange(rows.count + 1, at::TensorOptions(at::kInt).device(weight.device()));
  return std::make_shared<const PackedTexts>(texts_between(numbers * rows.length, rows.length));
}

std::shared_ptr<const PackedTexts> unpadded_texts(const at::Tensor& attention_mask, const at::Tensor& weight,
                                                  const AttentionHeads& heads) {
  if (attention_mask.is_cpu() || comm::RecordableWork::is_here()) return nullptr;
  if (!uses_flash(weight, heads.size)) return nullptr;
  auto texts = texts_of_mask(attention_mask);
  return texts ? std::make_shared<const PackedTexts>(std::move(*texts)) : nullptr;
}

std::shared_ptr<const PackedTexts> with_window(const PackedTexts& texts, std::int64_t before,
                                               std::int64_t after) {
  auto own = std::make_shared<PackedTexts>(texts);
  own->before = before;
  own->after = after;
  return own;
}

std::shared_ptr<const PackedTexts> causal_texts(const PackedTexts& texts) {
  auto own = std::make_shared<PackedTexts>(texts);
  own->causal = true;
  return own;
}

}  // namespace lockstep::models
