#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"
#include "text/labels.hpp"

/// Tokenized texts with their classes: samples of "input_ids", "attention_mask" and "token_type_ids", int64
/// [tokens], and "labels", a class number; a batch is as long as its longest text.
struct Rows {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
  texts::Classes classes;
};

/// What the data must know of the model.
struct ModelFacts {
  /// The token that fills rows up.
  std::int64_t pad_token = 0;
  /// The classes of config.json, where the model has one and its classifier is kept.
  std::optional<texts::Classes> classes;
};

/// Reads and tokenizes the files that the options name; the ranks share the work and find it done the next
/// time. *Collective*. Throws UsageError for what the options should say otherwise, DataError for the files
/// and for classes that are not the model's.
Rows load_rows(const Options& options, const ModelFacts& model, const lockstep::DistributedContext& ranks);
