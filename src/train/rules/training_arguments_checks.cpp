#include <cmath>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "train/rules/fsdp_config.hpp"
#include "train/rules/metric_names.hpp"
#include "train/rules/schedule_kwargs.hpp"

namespace lockstep {
namespace {

using Args = TrainingArguments;

void demand(bool holds, const std::string& text) {
  if (!holds) throw UsageError("training arguments: " + text);
}

void check_length(const Args& args) {
  demand(args.max_steps != 0, "max_steps is 0: leave it at -1 to train for num_train_epochs");
  demand(!args.max_duration || args.max_steps < 0,
         "max_duration and max_steps both say how long to train: give one of them");
  demand(!args.max_duration ||
             (args.max_duration->unit() != Duration::Unit::share && !args.max_duration->is_zero()),
         "max_duration must be steps, epochs, samples or seconds, and more than 0; a share (dur) has no "
         "total to refer to");
  demand(args.global_batch_size == 0 || args.gradient_accumulation_steps == 1,
         "global_batch_size determines gradient_accumulation_steps: give one of them");
}

void check_precision(const Args& args) {
  demand(!(args.bf16 && args.fp16), "bf16 and fp16 exclude each other: choose one");
  demand(!(args.bf16_full_eval && args.fp16_full_eval),
         "bf16_full_eval and fp16_full_eval exclude each other: choose one");
}

void check_fsdp(const Args& args) {
  if (!fsdp_plugin(args)) return;
  demand(!args.bf16_full_eval && !args.fp16_full_eval,
         "bf16_full_eval and fp16_full_eval change weights in place, which fsdp has sharded: leave them off");
  demand(args.average_tokens_across_devices,
         "fsdp keeps no gradients of a single rank: leave average_tokens_across_devices on");
}

void check_schedule(const Args& args) {
  check_schedule_kwargs(args);
  demand(!args.warmup_steps.is_time(), "warmup_steps cannot be a time: a schedule counts steps");
  demand(
      !args.max_duration || !args.max_duration->is_time() || !has_last_step(args),
      "a training that ends by the clock has no last step for a learning rate that falls towards it: choose "
      "lr_scheduler_type constant, constant_with_warmup or inverse_sqrt");
  const bool plateau = args.lr_scheduler_type == "reduce_lr_on_plateau";
  demand(!plateau || args.eval_strategy != IntervalStrategy::no,
         "lr_scheduler_type reduce_lr_on_plateau needs evaluations: set eval_strategy to steps or epoch");
}

void check_intervals(const Args& args) {
  demand(
      !args.logging_steps.is_time() && !args.save_steps.is_time() &&
          !(args.eval_steps && args.eval_steps->is_time()) && !args.eval_delay.is_time(),
      "logging_steps, eval_steps, save_steps and eval_delay cannot be times: ranks must agree on the step");
  demand(args.eval_strategy != IntervalStrategy::no || !args.eval_on_start,
         "eval_on_start needs evaluations: set eval_strategy to steps or epoch");
}

/// Whether every checkpoint coincides with an evaluation.
bool is_multiple(const Duration& whole, const Duration& part) {
  if (whole.unit() != part.unit()) return whole == part;
  const double times = whole.value() / part.value();
  return std::abs(times - std::round(times)) < 1e-9 && times >= 1;
}

void check_best(const Args& args) {
  demand(args.save_strategy != SaveStrategy::best || args.eval_strategy != IntervalStrategy::no,
         "save_strategy best needs evaluations: set eval_strategy to steps or epoch");
  if (!args.load_best_model_at_end) return;
  demand(args.eval_strategy != IntervalStrategy::no,
         "load_best_model_at_end needs evaluations: set eval_strategy to steps or epoch");
  demand(args.save_strategy != SaveStrategy::no,
         "load_best_model_at_end needs checkpoints: set save_strategy to " + option_word(args.eval_strategy) +
             " or best");
  if (args.save_strategy == SaveStrategy::best) return;
  demand(option_word(args.save_strategy) == option_word(args.eval_strategy),
         "load_best_model_at_end needs a checkpoint where the best evaluation was: eval_strategy is " +
             option_word(args.eval_strategy) + " but save_strategy is " + option_word(args.save_strategy));
  const Duration eval_steps = args.eval_steps.value_or(args.logging_steps);
  demand(args.eval_strategy != IntervalStrategy::steps || is_multiple(args.save_steps, eval_steps),
         "load_best_model_at_end needs save_steps to be a multiple of eval_steps: " + args.save_steps.text() +
             " is none of " + eval_steps.text());
}

void check_saving(const Args& args) {
  demand(!args.save_only_model || !args.async_save,
         "save_only_model writes at once: async_save is for whole checkpoints");
}

}  // namespace

void check_training_arguments(const TrainingArguments& args) {
  training_argument_table().check(args);
  check_length(args);
  check_precision(args);
  check_fsdp(args);
  check_schedule(args);
  check_intervals(args);
  check_best(args);
  check_saving(args);
}

std::optional<std::string> best_metric_name(const TrainingArguments& args) {
  const bool needed = args.load_best_model_at_end || args.save_strategy == SaveStrategy::best ||
                      args.lr_scheduler_type == "reduce_lr_on_plateau";
  if (!args.metric_for_best_model && !needed) return std::nullopt;
  return train::with_prefix("eval", args.metric_for_best_model.value_or("loss"));
}

bool greater_metric_is_better(const TrainingArguments& args) {
  return args.greater_is_better.value_or(!best_metric_name(args).value_or("loss").ends_with("loss"));
}

}  // namespace lockstep
