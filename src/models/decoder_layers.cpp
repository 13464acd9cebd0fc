#include "models/decoder_layers.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/fused_kernels.hpp"
#include "models/packed_product.hpp"
#include "models/split_columns.hpp"

namespace lockstep::models {
namespace {

Linear projection(std::int64_t inputs, std::int64_t outputs, bool bias) {
  return Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

/// Whether products read copies of the weight, which may lie one after another; weights that they read
/// themselves would have to be copied for that.
bool has_copies(const Linear& layer) { return layer->weight.scalar_type() == at::kFloat; }

/// Each head of keys or values as often as queries use it.
at::Tensor repeated_heads(const at::Tensor& states, std::int64_t times) {
  if (times == 1) return states;
  return states.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

/// Attention whose products are capped, which no fused kernel does.
at::Tensor capped_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionMask& mask, double dropout, double scale, double cap) {
  at::Tensor products = at::matmul(query, key.transpose(2, 3)) * scale;
  products = at::tanh(products / cap) * cap;
  const at::Tensor shown =
      mask.causal ? at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).tril()
                  : mask.mask;
  if (shown.defined()) products = products.masked_fill(shown.logical_not(), -INFINITY);
  at::Tensor weights = at::_safe_softmax(products, -1, at::kFloat).to(query.scalar_type());
  if (dropout > 0) weights = at::dropout(weights, dropout, /*train=*/true);
  return at::matmul(weights, value);
}

}  // namespace

RmsNormImpl::RmsNormImpl(std::int64_t size, const DecoderConfig& config)
    : kind_(config.norm_weight), eps_(config.rms_norm_eps) {
  const bool from_zero = kind_ == NormWeight::plus_one;
  weight_ = register_parameter("weight", from_zero ? torch::zeros({size}) : torch::ones({size}));
}

at::Tensor RmsNormImpl::forward(const at::Tensor& states) {
  if (states.dim() != 4 || !kernels::fused_dtype(states)) return normalized({states}).normed;
  // Of heads, which lie side by side in memory.
  return normalized({states.transpose(1, 2)}).normed.transpose(1, 2);
}

NormedStates RmsNormImpl::normalized(const Residual& residual) {
  return normalize(residual, parameters_of_kernel(),
                   [this](const at::Tensor& states) { return composed(states); });
}

at::Tensor RmsNormImpl::of_last_layer(const Residual& residual) {
  return final_norm(residual, parameters_of_kernel(),
                    [this](const at::Tensor& states) { return composed(states); });
}

kernels::RmsNormParameters RmsNormImpl::parameters_of_kernel() const {
  return {.weight = weight_, .epsilon = eps_, .offset = kind_ == NormWeight::plus_one ? 1.0 : 0.0};
}

at::Tensor RmsNormImpl::composed(const at::Tensor& states) const {
  const at::Tensor values = states.to(at::kFloat);
  const at::Tensor normed = values * at::rsqrt(values.pow(2).mean(-1, /*keepdim=*/true) + eps_);
  switch (kind_) {
    case NormWeight::after_cast:
      return weight_ * normed.to(states.scalar_type());
    case NormWeight::in_float32:
      return (weight_ * normed).to(states.scalar_type());
    case NormWeight::plus_one:
      break;
  }
  return (normed * (1.0 + weight_.to(at::kFloat))).to(states.scalar_type());
}

DecoderAttentionImpl::DecoderAttentionImpl(const DecoderConfig& config)
    : heads_(config.num_attention_heads),
      key_heads_(config.num_key_value_heads),
      size_(config.head_dim),
      drop_(config.attention_dropout),
      scale_(config.attention_scale.value_or(std::pow(static_cast<double>(config.head_dim), -0.5))),
      softcap_(config.attention_softcap),
      qk_norm_(config.qk_norm) {
  const auto width = config.hidden_size, queries = heads_ * size_, keys = key_heads_ * size_;
  if (config.fused) {
    output_ = register_module("o_proj", projection(queries, width, config.output_bias));
    all_ = register_module("qkv_proj", projection(width, queries + 2 * keys, config.qkv_bias));
  } else {
    query_ = register_module("q_proj", projection(width, queries, config.qkv_bias));
    key_ = register_module("k_proj", projection(width, keys, config.qkv_bias));
    value_ = register_module("v_proj", projection(width, keys, config.qkv_bias));
    output_ = register_module("o_proj", projection(queries, width, config.output_bias));
  }
  if (qk_norm_ == QkNorm::none) return;
  const bool is_whole = qk_norm_ == QkNorm::whole;
  query_norm_ = register_module("q_norm", RmsNorm(is_whole ? queries : size_, config));
  key_norm_ = register_module("k_norm", RmsNorm(is_whole ? keys : size_, config));
}

std::vector<at::Tensor> DecoderAttentionImpl::project(const at::Tensor& states) {
  if (all_) return split_columns(all_(states), {heads_ * size_, key_heads_ * size_, key_heads_ * size_});
  if (has_copies(query_)) return packed_forward(states, {query_, key_, value_});
  return {query_(states), key_(states), value_(states)};
}

at::Tensor DecoderAttentionImpl::forward(const at::Tensor& states, const DecoderContext& context,
                                         std::size_t layer) {
  const auto parts = project(states);
  at::Tensor query = parts[0], key = parts[1], value = parts[2];
  if (qk_norm_ == QkNorm::whole) query = query_norm_(query), key = key_norm_(key);
  query = split_heads(query, heads_), key = split_heads(key, key_heads_),
  value = split_heads(value, key_heads_);
  if (qk_norm_ == QkNorm::head) query = query_norm_(query), key = key_norm_(key);
  if (context.rotation.cos.defined()) {
    const auto turned = rotate_both({query, key}, context.rotation);
    query = turned.query, key = turned.key;
  }
  if (context.cache) context.cache->append(layer, key, value);
  const double drop = is_training() ? drop_ : 0.0;
  const auto groups = heads_ / key_heads_;
  const auto& mask = context.mask;
  if (mask.texts) {
    return output_(attend_texts(query, key, value, *mask.texts, {.dropout = drop, .scale = scale_}));
  }
  // Where LibTorch's fused kernels take fewer heads of keys than of queries.
  const bool takes_groups =
      groups > 1 && query.is_cuda() && !mask.mask.defined() && size_ <= 256 && softcap_ == 0;
  if (!takes_groups) key = repeated_heads(key, groups), value = repeated_heads(value, groups);
  at::Tensor attended;
  if (softcap_ > 0) {
    attended = capped_attention(query, key, value, mask, drop, scale_, softcap_);
  } else {
    const auto given = mask.mask.defined() ? std::optional<at::Tensor>(mask.mask) : std::nullopt;
    attended =
        at::scaled_dot_product_attention(query, key, value, given, drop, mask.causal, scale_, takes_groups);
  }
  return output_(merge_heads(attended));
}

DecoderMlpImpl::DecoderMlpImpl(const DecoderConfig& config) : activation_(config.hidden_act) {
  const auto width = config.hidden_size, inner = config.intermediate_size;
  if (config.fused) {
    both_ = register_module("gate_up_proj", projection(width, 2 * inner, config.mlp_bias));
  } else {
    gate_ = register_module("gate_proj", projection(width, inner, config.mlp_bias));
    up_ = register_module("up_proj", projection(width, inner, config.mlp_bias));
  }
  down_ = register_module("down_proj", projection(inner, width, config.mlp_bias));
}

at::Tensor DecoderMlpImpl::forward(const at::Tensor& states) {
  if (both_) return down_(activate_gate(activation_, both_(states)));
  if (has_copies(gate_)) {
    const at::Tensor both = packed_product(states, {gate_, up_});
    if (both.defined()) return down_(activate_gate(activation_, both));
  }
  const at::Tensor up = up_(states), gate = gate_(states);
  return down_(activate_gate(activation_, gate, up));
}

DecoderBlockImpl::DecoderBlockImpl(const DecoderConfig& config) : residual_scale_(config.residual_scale) {
  const auto norm = [&](const char* name) {
    return register_module(name, RmsNorm(config.hidden_size, config));
  };
  attention_ = register_module("self_attn", DecoderAttention(config));
  mlp_ = register_module("mlp", DecoderMlp(config));
  // Hugging Face's names: the norm before the feed-forward part is "after attention" in families that have no
  // other.
  if (config.norms != NormPlaces::after) before_attention_ = norm("input_layernorm");
  if (config.norms == NormPlaces::before) {
    before_mlp_ = norm("post_attention_layernorm");
  } else {
    after_attention_ = norm("post_attention_layernorm");
    if (config.norms == NormPlaces::around) before_mlp_ = norm("pre_feedforward_layernorm");
    after_mlp_ = norm("post_feedforward_layernorm");
  }
  if (config.resid_pdrop > 0)
    dropout_ = register_module("resid_dropout", torch::nn::Dropout(config.resid_pdrop));
}

Residual DecoderBlockImpl::forward(const Residual& states, const DecoderContext& context, std::size_t layer) {
  // A second run would append to the cache again.
  if (context.cache) return through_once(*this, &DecoderBlockImpl::body, states, context, layer);
  return through(*this, &DecoderBlockImpl::body, input_of(*this, states), context, layer);
}

Residual DecoderBlockImpl::joined(const at::Tensor& states, at::Tensor branch) {
  if (dropout_) branch = dropout_(branch);
  if (residual_scale_ != 1) branch = branch * residual_scale_;
  return add_branch(states, branch);
}

Residual DecoderBlockImpl::body(const Residual& residual, const DecoderContext& context, std::size_t layer) {
  const auto before = [](RmsNorm& norm, const Residual& values) {
    if (norm) return norm->normalized(values);
    const at::Tensor states = whole_states(values);
    return NormedStates{.states = states, .normed = states};
  };
  const auto after = [](RmsNorm& norm, const at::Tensor& branch) { return norm ? norm(branch) : branch; };
  const NormedStates first = before(before_attention_, residual);
  const at::Tensor attended = after(after_attention_, attention_(first.normed, context, layer));
  const NormedStates second = before(before_mlp_, joined(first.states, attended));
  return joined(second.states, after(after_mlp_, mlp_(second.normed)));
}

}  // namespace lockstep::models
