#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"

/// Samples of "input_ids" and "labels", and with --packing "position_ids".
struct Samples {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
  /// What of the files is not used; empty: nothing.
  std::string unused;
};

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files.
Samples load_samples(const Options& options, std::int64_t max_length,
                     const lockstep::DistributedContext& ranks);
