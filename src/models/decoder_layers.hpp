#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/pimpl.h>

#include <cstddef>

#include "lockstep/models/decoder.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/residual.hpp"
#include "models/rope.hpp"

namespace lockstep::models {

/// The root mean square norm, with a weight.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(std::int64_t size, const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& states);
  /// The states with the branch, and their norm.
  NormedStates normalized(const Residual& residual);
  /// The norm alone: behind the last layer.
  at::Tensor of_last_layer(const Residual& residual);

 private:
  at::Tensor composed(const at::Tensor& states) const;
  kernels::RmsNormParameters parameters_of_kernel() const;

  NormWeight kind_;
  double eps_;
  at::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// What a layer gets besides the states.
struct DecoderContext {
  AttentionMask mask;
  /// Without positions: undefined tensors.
  Rotation rotation;
  KeyValueCache* cache = nullptr;
};

class DecoderAttentionImpl : public torch::nn::Module {
 public:
  explicit DecoderAttentionImpl(const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& states, const DecoderContext& context, std::size_t layer);

 private:
  /// Queries, keys and values.
  std::vector<at::Tensor> project(const at::Tensor& states);

  std::int64_t heads_, key_heads_, size_;
  double drop_, scale_, softcap_;
  QkNorm qk_norm_;
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, all_{nullptr}, output_{nullptr};
  RmsNorm query_norm_{nullptr}, key_norm_{nullptr};
};
TORCH_MODULE(DecoderAttention);

/// The gated feed-forward part.
class DecoderMlpImpl : public torch::nn::Module {
 public:
  explicit DecoderMlpImpl(const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& states);

 private:
  std::string activation_;
  Linear gate_{nullptr}, up_{nullptr}, both_{nullptr}, down_{nullptr};
};
TORCH_MODULE(DecoderMlp);

class DecoderBlockImpl : public torch::nn::Module, public Unit {
 public:
  explicit DecoderBlockImpl(const DecoderConfig& config);
  Residual forward(const Residual& states, const DecoderContext& context, std::size_t layer);

 private:
  Residual body(const Residual& states, const DecoderContext& context, std::size_t layer);
  /// `states` with what a branch makes of them.
  Residual joined(const at::Tensor& states, at::Tensor branch);

  double residual_scale_;
  DecoderAttention attention_{nullptr};
  DecoderMlp mlp_{nullptr};
  /// Null where the family has none.
  RmsNorm before_attention_{nullptr}, after_attention_{nullptr}, before_mlp_{nullptr}, after_mlp_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(DecoderBlock);

}  // namespace lockstep::models
