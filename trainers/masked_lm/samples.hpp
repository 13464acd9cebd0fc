#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "options.hpp"

/// Tokens, some of them masked, and the labels to predict: samples of "input_ids" and "labels" and, with
/// --line-by-line, "attention_mask", int64 [tokens].
struct Samples {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
};

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files and for a tokenizer without a
/// mask.
Samples load_samples(const Options& options, const lockstep::Tokenizer& tokenizer, std::int64_t max_length,
                     std::int64_t pad_token, const lockstep::DistributedContext& ranks);
