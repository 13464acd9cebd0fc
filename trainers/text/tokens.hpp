#pragma once

#include <functional>
#include <string>

#include "lockstep/train/trainer.hpp"

namespace texts {

/// Predictions for tokens [rows, tokens, vocabulary] and what they should be [rows, tokens]; labels that are
/// metrics::kIgnoredLabel do not count.
struct Predicted {
  at::Tensor logits;
  at::Tensor labels;
};

/// What a model's outputs predict of a batch.
using PredictedOf = Predicted (*)(const lockstep::Batch& outputs, const lockstep::Batch& batch);

/// The sum of the losses and the number of tokens, so that every token weighs the same, whatever the padding
/// of its batch and on any number of ranks. `smoothing`: the share that each label gives to all tokens of the
/// vocabulary (label_smoothing_factor).
lockstep::Loss token_loss(const Predicted& predicted, double smoothing);

/// token_loss() of what a model predicts, as Trainer takes it.
std::function<lockstep::Loss(const lockstep::Batch& outputs, const lockstep::Batch& batch)> token_loss_of(
    PredictedOf predicted_of, double smoothing);

/// The share of tokens that the model would have chosen itself, as `prefix` and "accuracy".
lockstep::ComputeMetrics token_accuracy(PredictedOf predicted_of, const std::string& prefix = {});

}  // namespace texts
