#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/models/vision_transformer.hpp"
#include "models/residual.hpp"

namespace lockstep::models {

/// Images as tokens: a class token, DeiT's distillation token, and one for each patch, with their positions.
class VisionEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit VisionEmbeddingsImpl(const VisionTransformerConfig& config);
  at::Tensor forward(const at::Tensor& pixel_values);

 private:
  /// The positions for a grid of `rows` x `columns` patches.
  at::Tensor positions(std::int64_t rows, std::int64_t columns) const;

  VisionTransformerConfig config_;
  /// Tokens before the patches.
  std::int64_t first_patch_;
  at::Tensor class_token_, distillation_token_, positions_;
  torch::nn::Conv2d projection_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(VisionEmbeddings);

/// The layers.
class VisionEncoderImpl : public torch::nn::Module {
 public:
  explicit VisionEncoderImpl(const VisionTransformerConfig& config);
  Residual forward(const at::Tensor& embedded);

 private:
  torch::nn::ModuleList layers_{nullptr};
};
TORCH_MODULE(VisionEncoder);

/// Embeddings, layers and the last normalization.
class VisionBodyImpl : public torch::nn::Module {
 public:
  explicit VisionBodyImpl(const VisionTransformerConfig& config);
  at::Tensor forward(const at::Tensor& pixel_values);

 private:
  VisionEmbeddings embeddings_{nullptr};
  VisionEncoder encoder_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

}  // namespace lockstep::models
