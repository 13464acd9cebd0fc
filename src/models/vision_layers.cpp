#include "models/vision_layers.hpp"

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/vision_functions.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Dropout;
using torch::nn::LayerNorm;

bool is_dinov2(const VisionTransformerConfig& config) { return config.model_type == "dinov2"; }

LayerNorm vision_norm(const VisionTransformerConfig& config) {
  return LayerNorm(torch::nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps));
}

/// The names of the files have a module around each linear layer: "output.dense".
class VisionDenseImpl : public torch::nn::Module {
 public:
  VisionDenseImpl(std::int64_t inputs, std::int64_t outputs) {
    dense_ = register_module("dense", Linear(inputs, outputs));
  }
  at::Tensor forward(const at::Tensor& states) { return dense_(states); }
  at::Tensor activated(const at::Tensor& states, const std::string& activation) {
    return dense_->activated(states, activation);
  }

 private:
  Linear dense_{nullptr};
};
TORCH_MODULE(VisionDense);

class VisionSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit VisionSelfAttentionImpl(const VisionTransformerConfig& config)
      : heads_(config.num_attention_heads), dropout_(config.attention_probs_dropout_prob) {
    const auto options =
        torch::nn::LinearOptions(config.hidden_size, config.hidden_size).bias(config.qkv_bias);
    query_ = register_module("query", Linear(options));
    key_ = register_module("key", Linear(options));
    value_ = register_module("value", Linear(options));
  }

  at::Tensor forward(const at::Tensor& states) {
    const auto parts = packed_forward(states, {query_, key_, value_});
    return attend(split_heads(parts[0], heads_), split_heads(parts[1], heads_), split_heads(parts[2], heads_),
                  {}, is_training() ? dropout_ : 0.0);
  }

 private:
  std::int64_t heads_;
  double dropout_;
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
};
TORCH_MODULE(VisionSelfAttention);

class VisionAttentionImpl : public torch::nn::Module {
 public:
  explicit VisionAttentionImpl(const VisionTransformerConfig& config) {
    self_ = register_module("attention", VisionSelfAttention(config));
    output_ = register_module("output", VisionDense(config.hidden_size, config.hidden_size));
  }
  at::Tensor forward(const at::Tensor& states) { return output_(self_(states)); }

 private:
  VisionSelfAttention self_{nullptr};
  VisionDense output_{nullptr};
};
TORCH_MODULE(VisionAttention);

/// DINOv2's feed-forward layers, plain or gated.
class VisionMlpImpl : public torch::nn::Module {
 public:
  explicit VisionMlpImpl(const VisionTransformerConfig& config)
      : activation_(config.hidden_act), gated_(config.use_swiglu_ffn) {
    const std::int64_t width = config.hidden_size;
    auto inner = static_cast<std::int64_t>(static_cast<double>(width) * config.mlp_ratio);
    if (gated_) {
      // Two thirds, so that three matrices are as large as two, rounded up to a multiple of 8.
      inner = (static_cast<std::int64_t>(static_cast<double>(inner * 2) / 3) + 7) / 8 * 8;
      in_ = register_module("weights_in", Linear(width, 2 * inner));
      out_ = register_module("weights_out", Linear(inner, width));
    } else {
      in_ = register_module("fc1", Linear(width, inner));
      out_ = register_module("fc2", Linear(inner, width));
    }
  }

  at::Tensor forward(const at::Tensor& states) {
    if (!gated_) return out_(in_->activated(states, activation_));
    const auto parts = in_(states).chunk(2, -1);
    return out_(at::silu(parts[0]) * parts[1]);
  }

 private:
  std::string activation_;
  bool gated_;
  Linear in_{nullptr}, out_{nullptr};
};
TORCH_MODULE(VisionMlp);

/// A trained factor for each of a branch's numbers.
class VisionLayerScaleImpl : public torch::nn::Module {
 public:
  explicit VisionLayerScaleImpl(const VisionTransformerConfig& config) {
    factors_ = register_parameter("lambda1", torch::full({config.hidden_size}, config.layerscale_value));
  }
  at::Tensor forward(const at::Tensor& branch) { return branch * factors_; }

 private:
  at::Tensor factors_;
};
TORCH_MODULE(VisionLayerScale);

/// A layer of ViT and DeiT.
class VisionLayerImpl : public torch::nn::Module, public Unit {
 public:
  explicit VisionLayerImpl(const VisionTransformerConfig& config) : activation_(config.hidden_act) {
    attention_ = register_module("attention", VisionAttention(config));
    in_ = register_module("intermediate", VisionDense(config.hidden_size, config.intermediate_size));
    out_ = register_module("output", VisionDense(config.intermediate_size, config.hidden_size));
    before_ = register_module("layernorm_before", vision_norm(config));
    after_ = register_module("layernorm_after", vision_norm(config));
    dropout_ = register_module("dropout", Dropout(config.hidden_dropout_prob));
  }

  Residual forward(const Residual& states) {
    return through(*this, &VisionLayerImpl::body, input_of(*this, states));
  }

 private:
  Residual body(const Residual& residual) {
    const auto [states, normed] = normalize(residual, before_);
    const auto attended = normalize(add_branch(states, dropout_(attention_(normed))), after_);
    return add_branch(attended.states, dropout_(out_(in_->activated(attended.normed, activation_))));
  }

  std::string activation_;
  VisionAttention attention_{nullptr};
  VisionDense in_{nullptr}, out_{nullptr};
  LayerNorm before_{nullptr}, after_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(VisionLayer);

/// A layer of DINOv2.
class Dinov2LayerImpl : public torch::nn::Module, public Unit {
 public:
  explicit Dinov2LayerImpl(const VisionTransformerConfig& config) : drop_path_rate_(config.drop_path_rate) {
    norm1_ = register_module("norm1", vision_norm(config));
    attention_ = register_module("attention", VisionAttention(config));
    scale1_ = register_module("layer_scale1", VisionLayerScale(config));
    norm2_ = register_module("norm2", vision_norm(config));
    mlp_ = register_module("mlp", VisionMlp(config));
    scale2_ = register_module("layer_scale2", VisionLayerScale(config));
  }

  Residual forward(const Residual& states) {
    return through(*this, &Dinov2LayerImpl::body, input_of(*this, states));
  }

 private:
  Residual body(const Residual& residual) {
    const auto [states, normed] = normalize(residual, norm1_);
    const auto attended = normalize(add_branch(states, dropped(scale1_(attention_(normed)))), norm2_);
    return add_branch(attended.states, dropped(scale2_(mlp_(attended.normed))));
  }

  at::Tensor dropped(const at::Tensor& branch) const {
    return drop_path(branch, drop_path_rate_, is_training());
  }

  double drop_path_rate_;
  LayerNorm norm1_{nullptr}, norm2_{nullptr};
  VisionAttention attention_{nullptr};
  VisionLayerScale scale1_{nullptr}, scale2_{nullptr};
  VisionMlp mlp_{nullptr};
};
TORCH_MODULE(Dinov2Layer);

/// The layer that turns patches into tokens, under the name that the files have.
class VisionPatchesImpl : public torch::nn::Module {
 public:
  explicit VisionPatchesImpl(torch::nn::Conv2d projection) { register_module("projection", projection); }
};
TORCH_MODULE(VisionPatches);

}  // namespace

VisionEmbeddingsImpl::VisionEmbeddingsImpl(const VisionTransformerConfig& config)
    : config_(config), first_patch_(config.model_type == "deit" ? 2 : 1) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t patches = (config.image_size.height / config.patch_size.height) *
                               (config.image_size.width / config.patch_size.width);
  // transformers draws these from a normal distribution that it cuts at -2 and 2: at a hundred deviations. Of
  // DeiT they are zero.
  const auto drawn = [&](std::vector<std::int64_t> sizes) {
    at::Tensor values = torch::zeros(sizes);
    if (config.model_type != "deit") torch::nn::init::normal_(values, 0, config.initializer_range);
    return values;
  };
  class_token_ = register_parameter("cls_token", drawn({1, 1, width}));
  positions_ = register_parameter("position_embeddings", drawn({1, patches + first_patch_, width}));
  if (config.model_type == "deit")
    distillation_token_ = register_parameter("distillation_token", torch::zeros({1, 1, width}));
  if (is_dinov2(config) && config.use_mask_token) {
    // Images are not masked here: kept for the file, without a gradient.
    register_parameter("mask_token", torch::zeros({1, width}), /*requires_grad=*/false);
  }
  const std::vector<std::int64_t> kernel = {config.patch_size.height, config.patch_size.width};
  projection_ =
      torch::nn::Conv2d(torch::nn::Conv2dOptions(config.num_channels, width, kernel).stride(kernel));
  register_module("patch_embeddings", VisionPatches(projection_));
  dropout_ = register_module("dropout", Dropout(config.hidden_dropout_prob));
}

at::Tensor VisionEmbeddingsImpl::forward(const at::Tensor& pixel_values) {
  const auto& patch = config_.patch_size;
  check_pixel_values(config_.model_type.c_str(), pixel_values, config_.num_channels, patch.height,
                     patch.width);
  const std::int64_t rows = pixel_values.size(0);
  std::vector<at::Tensor> tokens{class_token_.expand({rows, -1, -1})};
  if (distillation_token_.defined()) tokens.push_back(distillation_token_.expand({rows, -1, -1}));
  tokens.push_back(projection_(pixel_values).flatten(2).transpose(1, 2));
  return dropout_(at::cat(tokens, 1) +
                  positions(pixel_values.size(2) / patch.height, pixel_values.size(3) / patch.width));
}

at::Tensor VisionEmbeddingsImpl::positions(std::int64_t rows, std::int64_t columns) const {
  const std::int64_t own_rows = config_.image_size.height / config_.patch_size.height;
  const std::int64_t own_columns = config_.image_size.width / config_.patch_size.width;
  if (rows == own_rows && columns == own_columns) return positions_;
  const std::int64_t patches = own_rows * own_columns;
  // In float32 whatever the dtype of the weights: in 16 bits, places would be rounded.
  const at::Tensor grid = positions_.narrow(1, first_patch_, patches)
                              .reshape({1, own_rows, own_columns, -1})
                              .permute({0, 3, 1, 2})
                              .to(positions_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor other = at::upsample_bicubic2d(grid, {rows, columns}, /*align_corners=*/false)
                               .to(positions_.scalar_type())
                               .permute({0, 2, 3, 1})
                               .reshape({1, rows * columns, -1});
  return at::cat({positions_.narrow(1, 0, first_patch_), other}, 1);
}

VisionEncoderImpl::VisionEncoderImpl(const VisionTransformerConfig& config) {
  layers_ = register_module("layer", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (is_dinov2(config)) {
      layers_->push_back(made_in_dtype(Dinov2Layer(config)));
    } else {
      layers_->push_back(made_in_dtype(VisionLayer(config)));
    }
  }
}

Residual VisionEncoderImpl::forward(const at::Tensor& embedded) {
  Residual states{embedded};
  for (const auto& layer : *layers_) {
    auto* dinov2 = layer->as<Dinov2LayerImpl>();
    states = dinov2 != nullptr ? dinov2->forward(states) : layer->as<VisionLayerImpl>()->forward(states);
  }
  return states;
}

VisionBodyImpl::VisionBodyImpl(const VisionTransformerConfig& config) {
  embeddings_ = register_module("embeddings", VisionEmbeddings(config));
  encoder_ = register_module("encoder", VisionEncoder(config));
  norm_ = register_module("layernorm", vision_norm(config));
}

at::Tensor VisionBodyImpl::forward(const at::Tensor& pixel_values) {
  return norm_(whole_states(encoder_(embeddings_(pixel_values))));
}

}  // namespace lockstep::models
