#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"

/// Samples as dpo_model() takes them: see tokenize_preferences().
struct Pairs {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
};

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files.
Pairs load_pairs(const Options& options, std::int64_t max_length, const lockstep::DistributedContext& ranks);
