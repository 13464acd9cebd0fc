#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"

/// Texts as blocks of tokens: samples of "input_ids" and "labels", and with --packing "position_ids", int64
/// [block size].
struct Blocks {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
};

/// Reads, tokenizes and packs the files that the options name. The ranks share the work, and the result is
/// cached. *Collective*. Throws UsageError for wrong options, DataError for the files.
Blocks load_blocks(const Options& options, std::int64_t block_size,
                   const lockstep::DistributedContext& ranks);
