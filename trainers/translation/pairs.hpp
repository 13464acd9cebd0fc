#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"

/// Tokenized pairs: samples of "input_ids", "attention_mask" and "labels", int64 [tokens]. A batch is as long
/// as its longest text; its labels are padded with -100.
struct Pairs {
  std::shared_ptr<const lockstep::ArrowTensorDataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::ArrowTensorDataset> validation;
};

/// Reads, joins and tokenizes the files that the options name. *Collective*. Throws UsageError for wrong
/// options, DataError for the files.
Pairs load_pairs(const Options& options, std::int64_t pad_token, const lockstep::DistributedContext& ranks);
