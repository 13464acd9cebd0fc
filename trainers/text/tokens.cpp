#include "tokens.hpp"

#include <torch/nn/functional/loss.h>

#include "lockstep/train/metrics.hpp"

namespace texts {
namespace {

using lockstep::Batch;
namespace F = torch::nn::functional;

class TokenAccuracy final : public lockstep::EvaluationMetrics {
 public:
  TokenAccuracy(std::string name, PredictedOf predicted_of)
      : name_(std::move(name)), predicted_of_(predicted_of) {}

  void reset() override { accuracy_ = {}; }
  void update(const Batch& outputs, const Batch& batch) override {
    const auto [logits, labels] = predicted_of_(outputs, batch);
    accuracy_.update(logits, labels);
  }
  lockstep::LogValues compute(const lockstep::ProcessGroup& group) override {
    return {{name_, accuracy_.of_all_ranks(group).compute()}};
  }
  std::vector<std::string> names() const override { return {name_}; }

 private:
  std::string name_;
  PredictedOf predicted_of_;
  lockstep::metrics::Accuracy accuracy_;
};

}  // namespace

lockstep::Loss token_loss(const Predicted& predicted, double smoothing) {
  const auto& [logits, labels] = predicted;
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      F::cross_entropy(logits.reshape({-1, logits.size(2)}), labels.reshape({-1}), options);
  return {.value = sum, .weight = (labels != lockstep::metrics::kIgnoredLabel).sum().item<double>()};
}

std::function<lockstep::Loss(const Batch&, const Batch&)> token_loss_of(PredictedOf predicted_of,
                                                                        double smoothing) {
  return [predicted_of, smoothing](const Batch& outputs, const Batch& batch) {
    return token_loss(predicted_of(outputs, batch), smoothing);
  };
}

std::shared_ptr<lockstep::EvaluationMetrics> token_accuracy(const std::string& name,
                                                            PredictedOf predicted_of) {
  return std::make_shared<TokenAccuracy>(name, predicted_of);
}

}  // namespace texts
