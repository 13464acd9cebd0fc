#include "tokens.hpp"

#include <torch/nn/functional/loss.h>

#include <cmath>

#include "lockstep/models/token_losses.hpp"
#include "lockstep/train/metrics.hpp"

namespace texts {

using lockstep::Batch;
namespace F = torch::nn::functional;

at::Tensor next_token_labels(const Batch& batch) { return lockstep::models::next_labels(batch["labels"]); }

lockstep::Loss token_loss(const Predicted& predicted, double smoothing) {
  const auto& [logits, labels] = predicted;
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      F::cross_entropy(logits.reshape({-1, logits.size(2)}), labels.reshape({-1}), options);
  return {.value = sum, .weight = (labels != lockstep::metrics::kIgnoredLabel).sum()};
}

std::function<lockstep::Loss(const Batch&, const Batch&)> token_loss_of(LabelsOf labels_of,
                                                                        double smoothing) {
  return [labels_of, smoothing](const Batch& outputs, const Batch& batch) -> lockstep::Loss {
    if (outputs.contains("loss_sum")) return {outputs["loss_sum"], outputs["loss_weight"]};
    return token_loss({outputs["logits"], labels_of(batch)}, smoothing);
  };
}

lockstep::ComputeMetrics token_accuracy(LabelsOf labels_of, const std::string& prefix) {
  const auto inputs = [labels_of](const Batch& outputs, const Batch& batch) {
    return std::pair(outputs[outputs.contains("predictions") ? "predictions" : "logits"], labels_of(batch));
  };
  return {lockstep::metrics::Accuracy(), inputs, prefix};
}

void evaluate_perplexity(lockstep::Trainer& trainer) {
  const double smoothing = trainer.args().label_smoothing_factor;
  for (const auto& [name, value] : trainer.evaluate()) {
    trainer.accelerator().print(name, " ", value);
    if (name != "eval_loss") continue;
    if (smoothing > 0) {
      trainer.accelerator().print("exp(eval_loss) ", std::exp(value),
                                  " (no perplexity: the loss has label_smoothing_factor ", smoothing, ")");
    } else {
      trainer.accelerator().print("perplexity ", std::exp(value));
    }
  }
}

}  // namespace texts
