#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <optional>

#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {
namespace {

/// Cross entropy with label smoothing; with `shift`, the logits of a token predict the label after it: labels
/// are shifted, because cutting logits would copy them.
Loss smoothed(const at::Tensor& logits, at::Tensor labels, double smoothing, std::optional<bool> shift) {
  if (!shift && labels.dim() > 1 && logits.dim() == labels.dim() + 1) {
    throw UsageError(
        "label_smoothing_factor: the model's logits are those of tokens, and whether they predict the "
        "token's "
        "own label or the one after it is not known: set TrainerComponents::shift_labels to true for a "
        "causal "
        "language model that shifts its labels itself, otherwise to false");
  }
  if (shift.value_or(false))
    labels = at::constant_pad_nd(labels.narrow(-1, 1, labels.size(-1) - 1), {0, 1}, metrics::kIgnoredLabel);
  labels = labels.reshape({-1});
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      torch::nn::functional::cross_entropy(logits.reshape({labels.size(0), -1}), labels, options);
  return {sum, (labels != metrics::kIgnoredLabel).sum()};
}

}  // namespace

Loss Trainer::training_step(const Batch& batch) {
  impl_->set_label_smoothing();
  const Batch outputs = impl_->parts.model->forward(batch);
  const Loss loss = compute_loss(outputs, batch);
  if (!loss.value.defined()) {
    throw UsageError(
        "Trainer: there is no loss: the model's outputs have no \"loss\", and no "
        "TrainerComponents::compute_loss "
        "is set");
  }
  if (loss.weight) {
    impl_->accelerator.backward(loss.value, *loss.weight);
  } else {
    impl_->accelerator.backward(loss.value);
  }
  return loss;
}

Loss Trainer::compute_loss(const Batch& outputs, const Batch& batch) {
  if (impl_->parts.compute_loss) return impl_->parts.compute_loss(outputs, batch);
  const double smoothing = impl_->args.label_smoothing_factor;
  if (smoothing > 0 && !impl_->set_label_smoothing() && batch.contains("labels")) {
    if (outputs.contains("logits"))
      return smoothed(outputs["logits"], batch["labels"], smoothing, impl_->parts.shift_labels);
    if (outputs.contains("loss_sum") || outputs.contains("loss")) {
      throw UsageError(
          "label_smoothing_factor: the model computes its loss itself, without smoothing, and has no output "
          "\"logits\" from which it could be computed: return these, or set TrainerComponents::compute_loss");
    }
  }
  if (outputs.contains("loss_sum")) return {outputs["loss_sum"], outputs["loss_weight"]};
  return {outputs.contains("loss") ? outputs["loss"] : at::Tensor()};
}

}  // namespace lockstep
