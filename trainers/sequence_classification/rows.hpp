#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.hpp"
#include "lockstep/data/job_store.hpp"
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

/// Reads and tokenizes the files that the options name; the ranks share the work and find it done the next
/// time. *Collective*. Throws UsageError for what the options should say otherwise, DataError for the files.
Rows load_rows(const Options& options, std::int64_t pad_token, const lockstep::JobRanks& ranks);
