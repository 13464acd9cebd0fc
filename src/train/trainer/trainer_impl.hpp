#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/train/logger.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

struct Trainer::Impl {
  Impl(const Accelerator& the_accelerator, TrainingArguments the_args, TrainerComponents the_parts);

  using Event = void (TrainerCallback::*)(CallbackContext&);
  /// Calls the event of all callbacks.
  void call(Trainer& trainer, Event event, const LogValues& values = {});
  void count_parameters();
  /// The given data set, or one of the trainer's; null: its stream. Throws UsageError when there is none.
  std::shared_ptr<const Dataset> eval_dataset(const std::shared_ptr<const Dataset>& given) const;
  /// Evaluates one data set, logs and tells the callbacks. Throws EvaluationInterrupted.
  LogValues evaluate(Trainer& trainer, const std::shared_ptr<const Dataset>& dataset,
                     const std::string& prefix);
  std::optional<LogValues> metrics_before_interruption(const std::string& prefix) const;
  /// A warning that is the same on every rank, from those that speak.
  template <class... Words>
  void warn(const Words&... words) const {
    logger.log(LogLevel::warning, args.log_on_each_node ? LogFrom::each_node : LogFrom::main_process,
               words...);
  }

  Accelerator accelerator;
  TrainingArguments args;
  TrainerComponents parts;
  Logger logger;
  TrainerState state;
  TrainerControl control;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<optim::Scheduler> scheduler;
  Loss last_loss;
  /// For floating_point_operations(), once it was asked.
  std::optional<std::int64_t> multiplied;
  /// A train() has prepared and registered things.
  bool has_trained = false;
  /// train() is under way.
  bool in_training = false;
  /// In a train(), between two steps: where an evaluation may be left for a checkpoint.
  bool between_steps = false;
  /// The evaluation under way is the rest of one that was interrupted.
  bool resumes_evaluation = false;
};

/// How many batches of a rank an evaluation reads at most; 0: all.
std::int64_t evaluated_batches(const TrainingArguments& args);

/// `value` with so many decimals, as transformers rounds times and rates.
double rounded(double value, int decimals);

/// `<prefix>_runtime`, `<prefix>_samples_per_second` and `<prefix>_steps_per_second`.
void add_speed(LogValues& values, const std::string& prefix, double seconds, double samples, double steps);

}  // namespace lockstep
