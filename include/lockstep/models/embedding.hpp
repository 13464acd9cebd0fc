#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

#include "lockstep/models/linear.hpp"

namespace lockstep::models {

/// torch::nn::Embedding that can have an adapter, as PEFT's for embeddings: it adds to the row of a token
/// that of the product of two thin matrices. Dropout does not concern it. Without max_norm.
class EmbeddingImpl : public torch::nn::EmbeddingImpl, public LoraLayer {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  /// `ids` are integers of any shape; the result has the width as its last size.
  at::Tensor forward(const at::Tensor& ids);
  bool has_turned_weight() const override { return true; }
  bool is_embedding() const override { return true; }

 private:
  Sizes sizes() const override { return {options.num_embeddings(), options.embedding_dim()}; }
  torch::nn::Module& module() override { return *this; }
  const at::Tensor& own_weight() const override { return weight; }
  void set_own_weight(const at::Tensor& own) override { parameters_["weight"] = weight = own; }
  void forget_parameter(const std::string& name) override { parameters_.erase(name); }
};
TORCH_MODULE(Embedding);

}  // namespace lockstep::models
