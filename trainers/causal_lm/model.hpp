#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"

/// A model and its functions for training: that of a folder, a new one, or a TorchScript file from Python.
struct LanguageModel {
  /// Maps blocks to their loss, see models::trainer_model; a TorchScript file to "logits" [rows, tokens,
  /// vocabulary].
  std::shared_ptr<lockstep::ModelAdapter> adapter;
  /// Tokens per block: from the options, otherwise from the model.
  std::int64_t block_size;
  std::function<void(const lockstep::Trainer&)> save;
  /// The prompt, continued by the model. *Local*. Empty for a TorchScript file, which is only trained.
  std::function<std::string(const at::Device&)> sample;
};

/// The model that the options name, or a new one for the tokenizer. *Local*. Throws DataError for files that
/// do not match, UsageError for sizes that do not. The options must outlive it.
LanguageModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer);

/// The sum of the losses and the number of tokens, so that every token has the same weight on any number of
/// ranks.
std::function<lockstep::Loss(const lockstep::Batch& outputs, const lockstep::Batch& batch)> token_loss(
    const Options& options);

/// The share of tokens that the model predicts correctly.
lockstep::ComputeMetrics token_accuracy();
