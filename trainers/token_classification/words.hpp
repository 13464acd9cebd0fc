#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"
#include "text/labels.hpp"

/// Tokenized texts with a tag for each word: samples of "input_ids", "attention_mask" and "token_type_ids",
/// int64 [tokens], and "labels" [tokens], class numbers or -100. A batch is as long as its longest text.
struct Words {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
  /// All have names.
  texts::Classes classes;
};

/// What loading the data needs to know about the model.
struct ModelFacts {
  std::string model_type;
  /// The padding token.
  std::int64_t pad_token = 0;
  /// The classes in config.json, if its classifier is kept.
  std::optional<texts::Classes> classes;
};

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files and for tags that are not the
/// model's.
Words load_words(const Options& options, const ModelFacts& model, const lockstep::DistributedContext& ranks);
