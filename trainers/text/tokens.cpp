#include "tokens.hpp"

#include <torch/nn/functional/loss.h>

#include "lockstep/train/metrics.hpp"

namespace texts {

using lockstep::Batch;
namespace F = torch::nn::functional;

lockstep::Loss token_loss(const Predicted& predicted, double smoothing) {
  const auto& [logits, labels] = predicted;
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      F::cross_entropy(logits.reshape({-1, logits.size(2)}), labels.reshape({-1}), options);
  return {.value = sum, .weight = (labels != lockstep::metrics::kIgnoredLabel).sum()};
}

std::function<lockstep::Loss(const Batch&, const Batch&)> token_loss_of(PredictedOf predicted_of,
                                                                        double smoothing) {
  return [predicted_of, smoothing](const Batch& outputs, const Batch& batch) {
    return token_loss(predicted_of(outputs, batch), smoothing);
  };
}

lockstep::ComputeMetrics token_accuracy(PredictedOf predicted_of, const std::string& prefix) {
  const auto inputs = [predicted_of](const Batch& outputs, const Batch& batch) {
    const auto predicted = predicted_of(outputs, batch);
    return std::pair(predicted.logits, predicted.labels);
  };
  return {lockstep::metrics::Accuracy(), inputs, prefix};
}

}  // namespace texts
