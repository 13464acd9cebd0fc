#include "models/modern_bert.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "lockstep/parallel/sharded_init.hpp"
#include "models/attention.hpp"
#include "models/decoder_form.hpp"
#include "models/encoder_layers.hpp"

namespace lockstep::models {
namespace {

/// LibTorch's has a bias whenever it has a weight.
class NormWithoutBias final : public torch::nn::LayerNormImpl {
 public:
  explicit NormWithoutBias(const torch::nn::LayerNormOptions& norm_options)
      : torch::nn::LayerNormImpl(norm_options) {
    drop_bias();
  }
  void reset() override {
    torch::nn::LayerNormImpl::reset();
    drop_bias();
  }

 private:
  void drop_bias() {
    if (parameters_.contains("bias")) parameters_.erase("bias");
    bias = at::Tensor();
  }
};

Linear modern_linear(std::int64_t inputs, std::int64_t outputs, bool bias) {
  return Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

/// The numbers of Python's trunc_normal_ for the same seed: uniform ones through the inverse of the
/// distribution.
void draw_cut_off(const at::Tensor& weight, double spread, double most) {
  const auto below = [](double value) { return (1 + std::erf(value / std::numbers::sqrt2)) / 2; };
  const double lowest = below(-most), highest = below(most);
  weight.uniform_(2 * lowest - 1, 2 * highest - 1);
  weight.erfinv_().mul_(spread * std::numbers::sqrt2).clamp_(-most * spread, most * spread);
}

RopeConfig rope_of(double theta) { return {.theta = theta}; }

}  // namespace

torch::nn::LayerNorm norm_of_rows(std::int64_t width, double epsilon, bool has_bias) {
  const auto norm_options = torch::nn::LayerNormOptions({width}).eps(epsilon);
  if (has_bias) return torch::nn::LayerNorm(norm_options);
  std::shared_ptr<torch::nn::LayerNormImpl> norm = std::make_shared<NormWithoutBias>(norm_options);
  return torch::nn::LayerNorm(std::move(norm));
}

std::vector<std::string> modern_layer_types(const EncoderConfig& config) {
  if (!config.modern.layer_types.empty()) return config.modern.layer_types;
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    types.emplace_back(i % config.modern.global_attn_every_n_layers == 0 ? kFullAttention
                                                                         : kSlidingAttention);
  return types;
}

ModernBertPositions::ModernBertPositions(const EncoderConfig& config)
    : heads_{config.num_attention_heads, config.hidden_size / config.num_attention_heads},
      reach_(config.modern.local_attention / 2),
      global_(rope_of(config.modern.global_rope_theta), config.hidden_size / config.num_attention_heads,
              config.max_position_embeddings),
      local_(rope_of(config.modern.local_rope_theta), config.hidden_size / config.num_attention_heads,
             config.max_position_embeddings) {
  for (const auto& type : modern_layer_types(config)) has_window_.push_back(type == kSlidingAttention);
}

ModernBertPositions::Contexts ModernBertPositions::contexts_at(const at::Tensor& positions,
                                                               const AttentionMask& mask,
                                                               const at::Tensor& states) {
  const auto rotation = [&](Rope& rope) {
    Rotation whole = rope.rotation_at(positions);
    return Rotation{whole.cos.to(states.scalar_type()), whole.sin.to(states.scalar_type())};
  };
  Contexts contexts{.global = {mask, rotation(global_)}, .local = {mask, rotation(local_)}};
  if (states.size(1) > reach_ + 1) contexts.local.mask = near(mask, states);
  return contexts;
}

AttentionMask ModernBertPositions::near(const AttentionMask& mask, const at::Tensor& states) const {
  if (mask.texts) return {.texts = with_window(*mask.texts, reach_, reach_)};
  if (!mask.mask.defined()) {
    if (const auto rows = whole_rows(states, states, heads_, reach_))
      return {.texts = with_window(*rows, reach_, reach_)};
  }
  // By places in the row: within a text they are as far apart as positions are.
  const auto length = states.size(1);
  at::Tensor near = at::ones({length, length}, states.options().dtype(at::kBool).requires_grad(false));
  near = near.tril(reach_).triu(-reach_);
  return {.mask = mask.mask.defined() ? near.logical_and(mask.mask) : near};
}

ModernBertEncoderLayerImpl::ModernBertEncoderLayerImpl(const EncoderConfig& config, bool is_first)
    : heads_(config.num_attention_heads),
      attention_dropout_(config.attention_probs_dropout_prob),
      mlp_dropout_(config.modern.mlp_dropout),
      activation_(config.hidden_act) {
  const auto& own = config.modern;
  const auto width = config.hidden_size, inner = config.intermediate_size;
  const auto norm = [&] { return norm_of_rows(width, config.layer_norm_eps, own.norm_bias); };
  if (!is_first) attention_norm_ = register_module("attn_norm", norm());
  all_ = register_at(*this, "attn.Wqkv", modern_linear(width, 3 * width, own.attention_bias));
  attended_ = register_at(*this, "attn.Wo", modern_linear(width, width, own.attention_bias));
  mlp_norm_ = register_module("mlp_norm", norm());
  inner_ = register_at(*this, "mlp.Wi", modern_linear(width, 2 * inner, own.mlp_bias));
  outer_ = register_at(*this, "mlp.Wo", modern_linear(inner, width, own.mlp_bias));
}

at::Tensor ModernBertEncoderLayerImpl::forward(const at::Tensor& states, const ModernBertContext& context) {
  return through(*this, &ModernBertEncoderLayerImpl::body, states, context);
}

at::Tensor ModernBertEncoderLayerImpl::body(const at::Tensor& states, const ModernBertContext& context) {
  const double dropout = is_training() ? attention_dropout_ : 0.0;
  const auto parts = all_(attention_norm_ ? attention_norm_(states) : states).chunk(3, -1);
  // In float32, whatever the dtype of the layers.
  const Heads turned = rotate_both({split_heads(parts[0], heads_), split_heads(parts[1], heads_)},
                                   context.rotation, /*in_float32=*/true);
  const at::Tensor attended =
      attend(turned.query, turned.key, split_heads(parts[2], heads_), context.mask, dropout);
  const at::Tensor middle = states + at::dropout(attended_(attended), dropout, is_training());
  const at::Tensor gated = activate_gate(activation_, inner_(mlp_norm_(middle)));
  return middle + outer_(at::dropout(gated, mlp_dropout_, is_training()));
}

double modern_output_spread(const EncoderConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
}

void initialize_modern_weight(const at::Tensor& weight, double spread, const EncoderConfig& config) {
  const at::NoGradGuard no_grad;
  parallel::set_initial_values(weight, [&](const at::Tensor& values) {
    draw_cut_off(values, spread, config.modern.initializer_cutoff_factor);
  });
}

void initialize_modern_layer(torch::nn::LinearImpl& layer, double spread, const EncoderConfig& config) {
  const at::NoGradGuard no_grad;
  initialize_modern_weight(layer.weight, spread, config);
  if (layer.bias.defined())
    parallel::set_initial_values(layer.bias, [](const at::Tensor& bias) { bias.zero_(); });
}

void initialize_modern_body(torch::nn::Module& body, const EncoderConfig& config) {
  for (const auto& entry : body.named_modules("", /*include_self=*/false)) {
    if (auto* linear = entry.value()->as<torch::nn::LinearImpl>()) {
      const bool is_output = entry.key().ends_with(".Wo");
      initialize_modern_layer(*linear, is_output ? modern_output_spread(config) : config.initializer_range,
                              config);
    } else if (auto* embedding = entry.value()->as<torch::nn::EmbeddingImpl>()) {
      initialize_modern_weight(embedding->weight, config.initializer_range, config);
    }
  }
}

}  // namespace lockstep::models
