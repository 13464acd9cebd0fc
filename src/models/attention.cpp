#include "attention.hpp"

#include <ATen/ATen.h>

#include "lockstep/core/error.hpp"

namespace lockstep::models {

at::Tensor split_heads(const at::Tensor& states, std::int64_t heads) {
  return states.view({states.size(0), states.size(1), heads, -1}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& states) { return states.transpose(1, 2).flatten(2); }

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionMask& mask, double dropout) {
  const auto given = mask.mask.defined() ? std::optional<at::Tensor>(mask.mask) : std::nullopt;
  return merge_heads(at::scaled_dot_product_attention(query, key, value, given, dropout, mask.causal));
}

at::Tensor padding_mask(const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  return attention_mask.to(at::kBool).view({attention_mask.size(0), 1, 1, attention_mask.size(1)});
}

at::Tensor activate(const std::string& name, const at::Tensor& values) {
  if (name == "gelu") return at::gelu(values);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(values, "tanh");
  if (name == "relu") return at::relu(values);
  if (name == "silu" || name == "swish") return at::silu(values);
  if (name == "tanh") return at::tanh(values);
  throw UsageError("the activation '" + name + "' is not known");
}

}  // namespace lockstep::models
