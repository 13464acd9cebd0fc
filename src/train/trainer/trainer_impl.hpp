#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/logger.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/trainer/delivered_events.hpp"
#include "train/training_scope.hpp"

namespace lockstep {

struct Trainer::Impl {
  Impl(const Accelerator& the_accelerator, TrainingArguments the_args, TrainerComponents the_parts);

  using Event = void (TrainerCallback::*)(CallbackContext&);
  /// Calls this event of all callbacks.
  void call(Trainer& trainer, Event event, const LogValues& values = {});
  /// The callbacks whose state is saved, by their names.
  std::map<std::string, std::vector<TrainerCallback*>> stateful_callbacks() const;
  void count_parameters();
  /// The given data set, or one of the trainer's; null means its stream. Throws UsageError if there is
  /// neither.
  std::shared_ptr<const Dataset> eval_dataset(const std::shared_ptr<const Dataset>& given) const;
  /// Evaluates one data set, logs the result and calls the callbacks. Throws EvaluationInterrupted.
  LogValues evaluate(Trainer& trainer, const std::shared_ptr<const Dataset>& dataset,
                     const std::string& prefix);
  /// Tells the model label_smoothing_factor, also where another trainer has told it another one. False if it
  /// computes no such loss.
  bool set_label_smoothing() const { return parts.model->set_label_smoothing(args.label_smoothing_factor); }
  /// See TrainingArguments::label_names.
  bool has_labels(const Batch& batch);
  std::optional<LogValues> metrics_before_interruption(const std::string& prefix) const;
  /// Logs a warning that is the same on every rank, from the ranks that write messages.
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
  /// The optimizer as the Accelerator has prepared it: checkpoints contain it as long as this exists.
  std::optional<AcceleratedOptimizer> accelerated_optimizer;
  /// What train() prepares; destroyed before the objects.
  train::TrainingScope scope;
  train::DeliveredEvents delivered;
  /// While lost ranks are replaced: ends that, with the reason.
  std::function<void(const std::string& why)> refuse_recoveries;
  Loss last_loss;
  /// For floating_point_operations(); set once it has been called.
  std::optional<std::int64_t> multiplied;
  /// Whether the trainer's own data have labels; set once it was needed.
  std::optional<bool> own_labels;
  /// Whether a train() has prepared and registered objects.
  bool has_trained = false;
  /// Whether train() is running.
  bool in_training = false;
  /// Whether train() is between two steps, where an evaluation may be interrupted for a checkpoint.
  bool between_steps = false;
  /// Whether the current evaluation is the rest of an interrupted one.
  bool resumes_evaluation = false;
};

/// Maximum number of batches per rank in an evaluation; 0: all.
std::int64_t evaluated_batches(const TrainingArguments& args);

/// `value` rounded to `decimals` decimals, as transformers rounds times and rates.
double rounded(double value, int decimals);

/// `<prefix>_runtime`, `<prefix>_samples_per_second` and `<prefix>_steps_per_second`.
void add_speed(LogValues& values, const std::string& prefix, double seconds, double samples, double steps);

}  // namespace lockstep
