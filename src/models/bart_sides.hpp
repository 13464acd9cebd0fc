#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/models/bart.hpp"
#include "models/attention.hpp"
#include "models/bart_form.hpp"
#include "models/bart_layers.hpp"
#include "models/sinusoids.hpp"

namespace lockstep::models {

/// Token and position embeddings: the first part of encoder and decoder. The token embedding may be shared
/// and then belongs to the body.
class BartSideImpl : public torch::nn::Module {
 public:
  BartSideImpl(const BartConfig& config, const torch::nn::Embedding& tokens);
  const at::Tensor& embedding() const { return tokens_->weight; }

 protected:
  /// `begin` tokens are in the cache.
  at::Tensor embedded(const at::Tensor& ids, std::int64_t begin);
  /// The last norm of the families that have one.
  at::Tensor finished(const at::Tensor& states) { return last_norm_ ? last_norm_(states) : states; }
  void register_rest();

  torch::nn::ModuleList layers_{nullptr};

 private:
  at::Tensor places(const at::Tensor& ids, std::int64_t begin);

  const BartForm& form_;
  double scale_, dropout_;
  std::int64_t positions_count_, width_, padding_;
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr};
  Sinusoids sines_;
  torch::nn::LayerNorm norm_{nullptr}, last_norm_{nullptr};
};

class BartEncoderImpl : public BartSideImpl {
 public:
  BartEncoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens);
  at::Tensor forward(const at::Tensor& ids, const AttentionMask& mask);

 private:
  double layerdrop_;
};
TORCH_MODULE(BartEncoder);

class BartDecoderImpl : public BartSideImpl {
 public:
  BartDecoderImpl(const BartConfig& config, const torch::nn::Embedding& tokens);
  at::Tensor forward(const at::Tensor& ids, const BartContext& context);
  KeyValueCache source_keys(const at::Tensor& states);

 private:
  double layerdrop_;
};
TORCH_MODULE(BartDecoder);

/// Encoder and decoder, with one token embedding or two.
class BartBodyImpl : public torch::nn::Module {
 public:
  explicit BartBodyImpl(const BartConfig& config);
  BartEncoder encoder{nullptr};
  BartDecoder decoder{nullptr};
};

}  // namespace lockstep::models
