#include "lockstep/models/trainer_model.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>

#include <iostream>

#include "lockstep/models/token_loss_model.hpp"

namespace lockstep::models {
namespace {

/// Once in a process: steps of an optimizer are mostly smaller than the distance of two numbers of 16 bits.
void warn_of_short_weights(torch::nn::Module& model) {
  for (const auto& entry : model.named_parameters()) {
    const auto dtype = entry.value().scalar_type();
    if (!entry.value().requires_grad() || (dtype != at::kBFloat16 && dtype != at::kHalf)) continue;
    static const bool warned = [&] {
      std::cerr << fmt::format(
                       "lockstep: warning: parameters that are trained are {}, for example '{}': small steps "
                       "of the optimizer are lost. Load the weights in float32 and compute with "
                       "mixed_precision, or freeze them and train an adapter (models::add_lora)\n",
                       c10::toString(dtype), entry.key())
                << std::flush;
      return true;
    }();
    static_cast<void>(warned);
    return;
  }
}

/// The batch's tensor of that name; undefined if it has none.
at::Tensor in_batch(const Batch& batch, const char* name) {
  return batch.contains(name) ? batch[name] : at::Tensor();
}

/// The outputs of a TokenLossModel, whether it is wrapped or not.
class LanguageModelForward {
 public:
  LanguageModelForward(const TokenLossModel& model, const LanguageModelOutputs& outputs)
      : model_(model), outputs_(outputs) {}

  Batch operator()(auto& wrapped, const Batch& batch) const {
    const bool has_labels = batch.contains("labels"), trains = model_->model().is_training();
    const TokenLosses losses = wrapped(
        LabelledTexts{.input_ids = batch["input_ids"],
                      .labels = in_batch(batch, "labels"),
                      .attention_mask = in_batch(batch, "attention_mask"),
                      .position_ids = in_batch(batch, "position_ids"),
                      .decoder_input_ids = in_batch(batch, "decoder_input_ids"),
                      .token_type_ids = in_batch(batch, "token_type_ids"),
                      .options = {.label_smoothing = label_smoothing_,
                                  .logits_at_a_time = outputs_.logits_at_a_time,
                                  .predictions = has_labels && !trains,
                                  .logits = !has_labels || outputs_.logits == LogitsOutput::always ||
                                            (outputs_.logits == LogitsOutput::in_evaluation && !trains)}});
    Batch result;
    const auto add = [&](const char* name, const at::Tensor& tensor) {
      if (tensor.defined()) result.set(name, tensor);
    };
    add("loss_sum", losses.loss_sum);
    add("loss_weight", losses.loss_weight);
    add("predictions", losses.predictions);
    add("logits", losses.logits);
    return result;
  }

  void set_label_smoothing(double factor) { label_smoothing_ = factor; }

 private:
  TokenLossModel model_;
  LanguageModelOutputs outputs_;
  double label_smoothing_ = 0;
};

/// The outputs of a TokenClassifier.
class TokenClassifierForward {
 public:
  Batch operator()(auto& wrapped, const Batch& batch) const {
    const at::Tensor logits = wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                      in_batch(batch, "token_type_ids"), in_batch(batch, "position_ids"));
    Batch result{{"logits", logits}};
    if (!batch.contains("labels")) return result;
    const at::Tensor labels = batch["labels"];
    result.set("loss_sum", torch::nn::functional::cross_entropy(
                               logits.to(at::promote_types(logits.scalar_type(), at::kFloat)).flatten(0, 1),
                               labels.flatten(),
                               torch::nn::functional::CrossEntropyFuncOptions()
                                   .reduction(torch::kSum)
                                   .label_smoothing(label_smoothing_)));
    result.set("loss_weight", labels.ne(kNoLabel).sum());
    return result;
  }

  void set_label_smoothing(double factor) { label_smoothing_ = factor; }

 private:
  double label_smoothing_ = 0;
};

}  // namespace

std::shared_ptr<ModelAdapter> trainer_model(const CausalLM& model, const LanguageModelOutputs& outputs) {
  warn_of_short_weights(*model.ptr());
  const TokenLossModel with_loss(model);
  return wrap_model(with_loss, LanguageModelForward(with_loss, outputs));
}

std::shared_ptr<ModelAdapter> trainer_model(const SequenceClassifier& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                    in_batch(batch, "token_type_ids"))}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const ImageClassifier& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch[batch.contains("pixel_values") ? "pixel_values" : "image"])}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const TokenClassifier& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, TokenClassifierForward());
}

std::shared_ptr<ModelAdapter> trainer_model(const MaskedLM& model, const LanguageModelOutputs& outputs) {
  warn_of_short_weights(*model.ptr());
  const TokenLossModel with_loss(model);
  return wrap_model(with_loss, LanguageModelForward(with_loss, outputs));
}

std::shared_ptr<ModelAdapter> trainer_model(const Seq2SeqLM& model, const LanguageModelOutputs& outputs) {
  warn_of_short_weights(*model.ptr());
  const TokenLossModel with_loss(model);
  return wrap_model(with_loss, LanguageModelForward(with_loss, outputs));
}

}  // namespace lockstep::models
