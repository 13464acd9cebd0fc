#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"

/// A model as the training needs it: a BART, or a program from Python.
struct TranslationModel {
  /// Pairs become "logits" [rows, target tokens, vocabulary].
  std::shared_ptr<lockstep::ModelAdapter> adapter;
  std::int64_t pad_token;
  std::function<void(const lockstep::Trainer&)> save;
  /// Target tokens [rows, tokens] for the texts of a batch. *Local*. None: a program from Python only trains.
  std::function<at::Tensor(const lockstep::Batch&)> generate;
};

/// The model that the options name, or a new one for the tokenizer. *Local*. Throws DataError for files that
/// do not fit, UsageError for sizes that do not. The options must outlive it.
TranslationModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer);
