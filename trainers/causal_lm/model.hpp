#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"

/// A model as the training needs it: a GPT-2, or a program from Python.
struct LanguageModel {
  /// Blocks become "logits" [rows, tokens, vocabulary].
  std::shared_ptr<lockstep::ModelAdapter> adapter;
  /// Tokens in a block: what the options say, or what the model takes.
  std::int64_t block_size;
  std::function<void(const lockstep::Trainer&)> save;
  /// A text that the model writes, behind the prompt. *Local*. None: a program from Python only trains.
  std::function<std::string(const at::Device&)> sample;
};

/// The model that the options name, or a new one for the tokenizer. *Local*. Throws DataError for files that
/// do not fit, UsageError for sizes that do not. The options must outlive it.
LanguageModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer);

/// The sum over the tokens and their number, so that every token weighs the same on any number of ranks.
std::function<lockstep::Loss(const lockstep::Batch& outputs, const lockstep::Batch& batch)> token_loss(
    const Options& options);

/// The share of tokens that the model would have chosen itself.
lockstep::ComputeMetrics token_accuracy();
