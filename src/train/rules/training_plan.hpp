#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/training_arguments.hpp"

namespace lockstep::train {

/// What the data and the ranks bring to a training.
struct TrainingSize {
  /// Micro-batches of one rank in an epoch; nothing for a stream of unknown length.
  std::optional<std::int64_t> batches_per_epoch = 0;
  std::int64_t accumulation_steps = 1;
  /// Samples of all ranks for one optimizer step.
  std::int64_t samples_per_step = 1;
};

/// How long a training is, and how often things happen in it, in optimizer steps: transformers' rules.
struct TrainingPlan {
  std::int64_t steps_per_epoch = 0;
  std::int64_t max_steps = 0;
  std::int64_t num_train_epochs = 0;
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  std::int64_t warmup_steps = 0;
  /// Where a time ends the training.
  std::optional<double> max_seconds = {};
};

/// *Local*. Where the length of an epoch is not known, an epoch counts as the whole training. Throws
/// UsageError where there is nothing to train on, and where epochs would have to say how long.
TrainingPlan make_training_plan(const TrainingArguments& args, const TrainingSize& size);

}  // namespace lockstep::train
