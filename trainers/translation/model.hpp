#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"

/// A model and its functions for training: that of a folder, a new one, or a TorchScript file from Python.
struct TranslationModel {
  /// Maps pairs to "logits" [rows, target tokens, vocabulary].
  std::shared_ptr<lockstep::ModelAdapter> adapter;
  std::int64_t pad_token;
  std::function<void(const lockstep::Trainer&)> save;
  /// Target tokens [rows, tokens] for the texts of a batch. *Local*. Empty for a TorchScript file, which is
  /// only trained.
  std::function<at::Tensor(const lockstep::Batch&)> generate;
};

/// The model that the options name, or a new one for the tokenizer. *Local*. Throws DataError for files that
/// do not match, UsageError for sizes that do not. The options must outlive it.
TranslationModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer);
