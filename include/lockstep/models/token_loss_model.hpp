#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Texts, and the tokens that a language model is to predict. The tensors are the arguments of token_losses()
/// of CausalLM, MaskedLM and Seq2SeqLM.
struct LabelledTexts {
  at::Tensor input_ids;
  at::Tensor labels;
  at::Tensor attention_mask = {};
  /// Of a CausalLM and a MaskedLM.
  at::Tensor position_ids = {};
  /// Of a Seq2SeqLM.
  at::Tensor decoder_input_ids = {};
  /// Of a MaskedLM.
  at::Tensor token_type_ids = {};
  TokenLossOptions options = {};
};
/// Used by DistributedDataParallel.
void visit_tensors_of(LabelledTexts& texts, const auto& visit) {
  for (at::Tensor* tensor : {&texts.input_ids, &texts.labels, &texts.attention_mask, &texts.position_ids,
                             &texts.decoder_input_ids, &texts.token_type_ids}) {
    if (tensor->defined()) visit(*tensor);
  }
}

/// A language model whose forward is its token_losses(): what DistributedDataParallel and fully_shard() wrap
/// in its place. It shares the model's parameters, buffers and parts, under their names, so that its files
/// are those of the model:
///
///     auto ddp = accelerator.prepare(models::TokenLossModel(model));
///     const auto losses = ddp(models::LabelledTexts{.input_ids = ids, .labels = ids});
///     accelerator.backward(losses.loss_sum, losses.loss_weight);
class TokenLossModelImpl : public torch::nn::Module {
 public:
  explicit TokenLossModelImpl(const CausalLM& model);
  explicit TokenLossModelImpl(const MaskedLM& model);
  explicit TokenLossModelImpl(const Seq2SeqLM& model);

  TokenLosses forward(const LabelledTexts& texts) { return losses_(texts); }
  /// The model that it wraps.
  const torch::nn::Module& model() const noexcept { return *model_; }
  /// Also of the model itself. *Local*.
  void train(bool on = true) override;

 private:
  void share_parts();

  std::shared_ptr<torch::nn::Module> model_;
  std::function<TokenLosses(const LabelledTexts&)> losses_;
};
TORCH_MODULE(TokenLossModel);

}  // namespace lockstep::models
