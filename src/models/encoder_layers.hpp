#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/embedding.hpp"
#include "lockstep/models/embedding.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/residual.hpp"

namespace lockstep::models {

/// Where a part is registered whose name has dots: "query" in the module "attention.self".
struct PartPlace {
  torch::nn::Module& module;
  std::string name;
};

/// The place in `root`. Modules between, which hold nothing but others, are made.
PartPlace place_of_part(torch::nn::Module& root, const std::string& name);

template <class Part>
Part register_at(torch::nn::Module& root, const std::string& name, Part part) {
  const PartPlace place = place_of_part(root, name);
  return place.module.register_module(place.name, std::move(part));
}

/// A norm of the family: a ModernBERT's has no bias unless norm_bias.
torch::nn::LayerNorm encoder_norm(std::int64_t width, const EncoderConfig& config);

/// The width of the embeddings.
std::int64_t embedding_width(const EncoderConfig& config);

/// Words and, if the family has them, positions and types.
class EncoderEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit EncoderEmbeddingsImpl(const EncoderConfig& config);
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types, const at::Tensor& positions);
  const at::Tensor& words() const { return words_->weight; }

 private:
  at::Tensor embedded_at_once(const kernels::EmbeddingIds& ids) const;
  /// Rows of the table of positions.
  at::Tensor places(const at::Tensor& ids, const at::Tensor& positions) const;

  double dropout_;
  /// Of padding in the table of positions, where texts begin behind it.
  std::optional<std::int64_t> padding_;
  Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

/// Attention and a feed-forward part, each added to its input and then normalized.
class EncoderLayerImpl : public torch::nn::Module, public Unit {
 public:
  explicit EncoderLayerImpl(const EncoderConfig& config);
  Norms forward(const Norms& states, const AttentionMask& mask);

 private:
  Norms body(const Norms& states, const AttentionMask& mask);

  std::int64_t heads_;
  double attention_dropout_, attended_dropout_, dropout_;
  std::string activation_;
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, attended_{nullptr}, inner_{nullptr},
      outer_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, output_norm_{nullptr};
};
TORCH_MODULE(EncoderLayer);

}  // namespace lockstep::models
