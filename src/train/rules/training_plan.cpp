#include "train/rules/training_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

/// So many steps that a time or another limit ends training first.
constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 2;

std::int64_t ceil_of_ratio(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

/// Whether the length is a number of epochs.
bool is_in_epochs(const TrainingArguments& args) {
  if (args.fast_dev_run > 0) return false;
  return args.max_duration ? args.max_duration->unit() == Duration::Unit::epochs : args.max_steps <= 0;
}

std::int64_t length_of(const TrainingArguments& args, const DurationScale& scale) {
  if (args.fast_dev_run > 0) return args.fast_dev_run;
  if (args.max_duration && args.max_duration->is_time()) return kEndless;
  if (args.max_duration) return std::max<std::int64_t>(args.max_duration->steps(scale), 1);
  if (args.max_steps > 0) return std::min(args.max_steps, kEndless);
  return Duration(args.num_train_epochs, Duration::Unit::epochs).steps(scale);
}

/// As in transformers if only max_steps determines the length: an epoch is the whole training.
std::int64_t steps_of_unknown_epochs(const TrainingArguments& args, const TrainingSize& size) {
  if (!is_in_epochs(args)) {
    return length_of(args,
                     {.steps_per_epoch = 1, .samples_per_step = size.samples_per_step, .training_steps = 0});
  }
  throw UsageError(
      "max_steps must be set to a positive value, or max_duration to steps or a time: the training data is a "
      "stream that does not know its length, so num_train_epochs does not say when the training ends");
}

}  // namespace

TrainingPlan make_training_plan(const TrainingArguments& args, const TrainingSize& size) {
  if (size.batches_per_epoch && *size.batches_per_epoch < 1)
    throw UsageError(
        "the training data set has no complete batch: "
        "it is empty, or dataloader_drop_last drops the only one");
  TrainingPlan plan;
  plan.steps_per_epoch = size.batches_per_epoch
                             ? ceil_of_ratio(*size.batches_per_epoch, size.accumulation_steps)
                             : steps_of_unknown_epochs(args, size);
  DurationScale scale{.steps_per_epoch = plan.steps_per_epoch,
                      .samples_per_step = size.samples_per_step,
                      .training_steps = 0};
  plan.max_steps = length_of(args, scale);
  plan.num_train_epochs = ceil_of_ratio(plan.max_steps, plan.steps_per_epoch);
  if (plan.max_steps < kEndless) plan.max_steps += size.step_offset;
  plan.is_in_epochs = is_in_epochs(args);
  if (plan.max_steps < kEndless) scale.training_steps = plan.max_steps;
  const auto at_least_one = [&](const Duration& duration) {
    return std::max<std::int64_t>(duration.steps(scale), 1);
  };
  plan.logging_steps = at_least_one(args.logging_steps);
  // transformers shows 500 if evaluation does not count steps.
  const Duration unused = 500;
  plan.eval_steps = at_least_one(
      args.eval_steps.value_or(args.eval_strategy == IntervalStrategy::steps ? args.logging_steps : unused));
  plan.save_steps = at_least_one(args.save_steps);
  // Parts of the training are rounded one by one.
  if (args.load_best_model_at_end && args.eval_strategy == IntervalStrategy::steps &&
      args.save_strategy == SaveStrategy::steps && plan.save_steps % plan.eval_steps != 0) {
    throw UsageError(fmt::format(
        "load_best_model_at_end needs an evaluation at each checkpoint: of {} steps, save_steps {} is every "
        "{} steps, "
        "which is no multiple of eval_steps {}, every {} steps. Give both as numbers of steps",
        plan.max_steps, args.save_steps.text(), plan.save_steps,
        args.eval_steps.value_or(args.logging_steps).text(), plan.eval_steps));
  }
  plan.warmup_steps = args.warmup_steps.steps(scale);
  if (args.max_duration && args.max_duration->is_time()) plan.max_seconds = args.max_duration->value();
  return plan;
}

}  // namespace lockstep::train
