#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <utility>

#include "kernels/gated.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "models/attention.hpp"

namespace lockstep::models {
namespace {

/// Of activate(); nothing for one that no gate's kernel has.
std::optional<kernels::Gate> fused_gate(const std::string& name) {
  if (name == "silu" || name == "swish") return kernels::Gate::silu;
  if (name == "gelu") return kernels::Gate::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return kernels::Gate::gelu_tanh;
  return std::nullopt;
}

/// As same_text_mask(), of the tokens that `attention_mask` shows alone: padding between two tokens begins no
/// text, and is not seen. On the CPU undefined if each row is one text.
at::Tensor same_text_without_padding(const at::Tensor& position_ids, const at::Tensor& attention_mask) {
  const at::Tensor shown = attention_mask.ne(0);
  const auto length = position_ids.size(1);
  const at::Tensor places =
      at::arange(length, position_ids.options().dtype(at::kLong)).expand_as(position_ids);
  // The last token that is shown, up to each place and before it.
  const at::Tensor last = std::get<0>(places.masked_fill(shown.logical_not(), -1).cummax(1));
  const at::Tensor before = at::constant_pad_nd(last, {1, -1}, -1);
  const at::Tensor follows = position_ids.eq(position_ids.gather(1, before.clamp_min(0)) + 1);
  const at::Tensor begins = shown.logical_and(before.ge(0)).logical_and(follows.logical_not());
  if (begins.is_cpu() && !begins.any().item<bool>()) return {};
  const at::Tensor text = begins.cumsum(1);
  return text.unsqueeze(2).eq(text.unsqueeze(1)).unsqueeze(1).logical_and(padding_mask(attention_mask));
}

}  // namespace

at::Tensor split_heads(const at::Tensor& states, std::int64_t heads) {
  return states.view({states.size(0), states.size(1), heads, -1}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& states) { return states.transpose(1, 2).flatten(2); }

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionMask& mask, double dropout) {
  if (mask.texts) return attend_texts(query, key, value, *mask.texts, {.dropout = dropout});
  const auto given = mask.mask.defined() ? std::optional<at::Tensor>(mask.mask) : std::nullopt;
  return merge_heads(at::scaled_dot_product_attention(query, key, value, given, dropout, mask.causal));
}

at::Tensor padding_mask(const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  return attention_mask.to(at::kBool).view({attention_mask.size(0), 1, 1, attention_mask.size(1)});
}

AttentionMask causal_mask(const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {.causal = true};
  const std::int64_t length = attention_mask.size(1);
  const auto options = attention_mask.options().dtype(at::kBool);
  const at::Tensor before = at::ones({length, length}, options).tril();
  return {.mask = padding_mask(attention_mask).logical_and(before)};
}

AttentionMask causal_mask_of_texts(const at::Tensor& position_ids) {
  const at::Tensor same = same_text_mask(position_ids);
  if (!same.defined()) return {.causal = true};
  const auto length = position_ids.size(1);
  return {.mask = same.logical_and(at::ones({length, length}, same.options()).tril())};
}

AttentionMask causal_attention(const at::Tensor& position_ids, const at::Tensor& attention_mask,
                               const at::Tensor& weight, const AttentionHeads& heads) {
  if (attention_mask.defined()) {
    const at::Tensor same =
        position_ids.defined() ? same_text_without_padding(position_ids, attention_mask) : at::Tensor();
    if (same.defined()) return {.mask = same.logical_and(at::ones_like(same[0][0]).tril())};
    auto texts = unpadded_texts(attention_mask, weight, heads);
    return texts ? AttentionMask{.texts = causal_texts(*texts)} : causal_mask(attention_mask);
  }
  if (!position_ids.defined()) return {.causal = true};
  auto texts = packed_texts(position_ids, weight, heads);
  return texts ? AttentionMask{.texts = causal_texts(*texts)} : causal_mask_of_texts(position_ids);
}

AttentionMask full_attention(const at::Tensor& position_ids, const at::Tensor& attention_mask,
                             const at::Tensor& weight, const AttentionHeads& heads) {
  if (attention_mask.defined()) {
    // As in transformers, where the positions of such rows choose embeddings alone.
    auto texts = unpadded_texts(attention_mask, weight, heads);
    if (texts) return {.texts = std::move(texts)};
    return {.mask = padding_mask(attention_mask)};
  }
  if (!position_ids.defined()) return {};
  auto texts = packed_texts(position_ids, weight, heads);
  if (texts) return {.texts = std::move(texts)};
  return {.mask = same_text_mask(position_ids)};
}

AttentionMask causal_mask_after(std::int64_t begin, const at::Tensor& attention_mask) {
  if (begin == 0) return causal_mask(attention_mask);
  // A single new token may attend to everything before it.
  return {.mask = padding_mask(attention_mask)};
}

at::Tensor positions_after(std::int64_t begin, const at::Tensor& ids, const at::Tensor& attention_mask,
                           std::int64_t of_padding) {
  if (!attention_mask.defined())
    return at::arange(begin, begin + ids.size(1), ids.options().dtype(at::kLong));
  const at::Tensor mask = attention_mask.to(at::kLong);
  const at::Tensor all = (mask.cumsum(1) - 1).masked_fill(mask == 0, of_padding);
  return all.narrow(1, begin, ids.size(1));
}

void check_next_tokens(const char* model, std::int64_t begin, const at::Tensor& ids,
                       const at::Tensor& attention_mask, std::int64_t longest) {
  std::int64_t length = begin + ids.size(1);
  if (length > longest && attention_mask.defined())
    length = attention_mask.to(at::kLong).sum(1).max().item<std::int64_t>();
  if (length > longest) {
    throw UsageError(
        fmt::format("this {} takes at most {} tokens; these would be {}", model, longest, length));
  }
  if (begin > 0 && ids.size(1) != 1) throw UsageError("tokens after the first come one at a time");
}

void check_tokens(const char* model, const at::Tensor& input_ids, const at::Tensor& position_ids,
                  std::int64_t longest) {
  if (!position_ids.defined()) {
    if (input_ids.dim() == 2 && input_ids.size(1) <= longest) return;
    throw UsageError(fmt::format("{} takes input_ids [rows, tokens] of at most {} tokens; got {}", model,
                                 longest, c10::str(input_ids.sizes())));
  }
  const bool is_shaped = input_ids.dim() == 2 && position_ids.sizes() == input_ids.sizes();
  const bool is_read = is_shaped && position_ids.is_cpu() && position_ids.numel() > 0;
  if (is_shaped && !(is_read && position_ids.max().item<std::int64_t>() >= longest)) return;
  throw UsageError(fmt::format("{} takes position_ids of the shape of input_ids, {}, below {}; got {}", model,
                               c10::str(input_ids.sizes()), longest, c10::str(position_ids.sizes())));
}

at::Tensor same_text_mask(const at::Tensor& position_ids) {
  const auto length = position_ids.size(1);
  if (length < 2) return {};
  at::Tensor text = at::zeros_like(position_ids);
  text.narrow(1, 1, length - 1).copy_(position_ids.diff().ne(1).cumsum(1));
  if (position_ids.is_cpu() && !text.any().item<bool>()) return {};
  return text.unsqueeze(2).eq(text.unsqueeze(1)).unsqueeze(1);
}

at::Tensor activate(const std::string& name, const at::Tensor& values) {
  if (name == "gelu") return at::gelu(values);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(values, "tanh");
  if (name == "relu") return at::relu(values);
  if (name == "silu" || name == "swish") return at::silu(values);
  if (name == "tanh") return at::tanh(values);
  throw UsageError("the activation '" + name + "' is not known");
}

at::Tensor activate_gate(const std::string& name, const at::Tensor& gate, const at::Tensor& up) {
  const auto fused = fused_gate(name);
  if (fused && kernels::takes_gate(gate, up, *fused)) return kernels::activate_gate(gate, up, *fused);
  if (up.defined()) return activate(name, gate) * up;
  const auto parts = gate.chunk(2, -1);
  return activate(name, parts[0]) * parts[1];
}

}  // namespace lockstep::models

namespace lockstep::models {

std::int64_t KeyValueCache::length() const { return layers.empty() ? 0 : layers.front().key.size(2); }

void KeyValueCache::append(std::size_t layer, at::Tensor& key, at::Tensor& value) {
  if (layer == layers.size()) {
    layers.push_back({key, value});
    return;
  }
  auto& known = layers.at(layer);
  known.key = key = at::cat({known.key, key}, 2);
  known.value = value = at::cat({known.value, value}, 2);
}

void KeyValueCache::reorder(const at::Tensor& rows) {
  if (tokens.defined()) tokens = tokens.index_select(0, rows);
  for (auto& layer : layers) {
    layer.key = layer.key.index_select(0, rows);
    layer.value = layer.value.index_select(0, rows);
  }
}

}  // namespace lockstep::models

namespace lockstep::models {

void initialize(torch::nn::Module& module, double spread) {
  const at::NoGradGuard no_grad;
  const auto draw = [&](const at::Tensor& weight) { torch::nn::init::normal_(weight, 0, spread); };
  if (auto* linear = module.as<torch::nn::LinearImpl>()) {
    // Quantized weights are loaded.
    if (linear->weight.is_floating_point()) parallel::set_initial_values(linear->weight, draw);
    if (linear->bias.defined())
      parallel::set_initial_values(linear->bias, [](const at::Tensor& bias) { bias.zero_(); });
  } else if (auto* embedding = module.as<torch::nn::EmbeddingImpl>()) {
    parallel::set_initial_values(embedding->weight, draw);
    if (const auto padding = embedding->options.padding_idx()) embedding->weight[*padding].zero_();
  }
}

}  // namespace lockstep::models
