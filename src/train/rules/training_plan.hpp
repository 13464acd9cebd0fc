#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/training_arguments.hpp"

namespace lockstep::train {

/// Sizes of data and job that determine the plan.
struct TrainingSize {
  /// Micro-batches of one rank per epoch; null for a stream of unknown length.
  std::optional<std::int64_t> batches_per_epoch = 0;
  std::int64_t accumulation_steps = 1;
  /// Samples of all ranks per optimizer step.
  std::int64_t samples_per_step = 1;
  /// Steps that a resumed training needs beyond the arguments' (or fewer), because a part of it had steps of
  /// another size.
  std::int64_t step_offset = 0;
};

/// The length of training and its intervals in optimizer steps, by transformers' rules.
struct TrainingPlan {
  std::int64_t steps_per_epoch = 0;
  std::int64_t max_steps = 0;
  std::int64_t num_train_epochs = 0;
  /// Whether the arguments give the length in epochs, which then end training too: some may be cut short.
  bool is_in_epochs = false;
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  std::int64_t warmup_steps = 0;
  /// Set if a time ends training.
  std::optional<double> max_seconds = {};
};

/// *Local*. If the length of an epoch is unknown, an epoch counts as the whole training. Throws UsageError if
/// there is nothing to train on, or if the length is given in epochs of unknown length.
TrainingPlan make_training_plan(const TrainingArguments& args, const TrainingSize& size);

}  // namespace lockstep::train
