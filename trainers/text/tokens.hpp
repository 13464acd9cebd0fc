#pragma once

#include <functional>
#include <string>

#include "lockstep/train/trainer.hpp"

namespace texts {

/// Logits for tokens [rows, tokens, vocabulary] and their labels [rows, tokens]; labels equal to
/// metrics::kIgnoredLabel do not count.
struct Predicted {
  at::Tensor logits;
  at::Tensor labels;
};

/// The labels of a language model's logits for a batch.
using LabelsOf = at::Tensor (*)(const lockstep::Batch& batch);

/// Those of a model whose logits predict the next token: see models::next_labels.
at::Tensor next_token_labels(const lockstep::Batch& batch);

/// The sum of the losses and the number of tokens, so that every token has the same weight, whatever the
/// padding of its batch and the number of ranks. `smoothing`: the share of each label that is spread over the
/// vocabulary (label_smoothing_factor).
lockstep::Loss token_loss(const Predicted& predicted, double smoothing);

/// The loss of a model's outputs, for Trainer: "loss_sum" and "loss_weight", or token_loss() of the "logits"
/// of a program from Python.
std::function<lockstep::Loss(const lockstep::Batch& outputs, const lockstep::Batch& batch)> token_loss_of(
    LabelsOf labels_of, double smoothing);

/// The share of tokens that the model predicts correctly, named `prefix` + "accuracy": by its "predictions",
/// or by the "logits" of a program from Python.
lockstep::ComputeMetrics token_accuracy(LabelsOf labels_of, const std::string& prefix = {});

/// Evaluates, and prints each value and the perplexity of the loss. A smoothed loss (label_smoothing_factor)
/// is above that of the tokens, so its exponential is printed as what it is. *Collective*.
void evaluate_perplexity(lockstep::Trainer& trainer);

}  // namespace texts
