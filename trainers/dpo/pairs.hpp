#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/collate.hpp"
#include "lockstep/datasets/arrow_tensors.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

/// Samples as dpo_model() takes them: see tokenize_preferences().
struct Pairs {
  std::shared_ptr<const lockstep::ArrowTensorDataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::ArrowTensorDataset> validation;
};

/// The reference's part of training on precomputed pairs.
struct ReferenceOfPairs {
  std::function<lockstep::models::CausalLM()> load;
  lockstep::CollateFunction collate;
  /// The folders that load() reads.
  std::vector<std::string> folders;
};

/// The pairs with the log-probabilities of the reference. The ranks share the work as they become free, and
/// the result is cached by the pairs, the content of the folders and the options: nothing is loaded or
/// computed again when the program is started again, and what is finished is kept when it is killed.
/// *Collective*.
Pairs with_reference(const Pairs& pairs, const ReferenceOfPairs& reference, const Options& options,
                     const lockstep::Accelerator& accelerator);

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files.
Pairs load_pairs(const Options& options, std::int64_t max_length, const lockstep::DistributedContext& ranks);
