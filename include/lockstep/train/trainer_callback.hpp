#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/trainer_state.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

class Trainer;

/// The argument of a callback's event. Valid only during the call.
struct CallbackContext {
  const TrainingArguments& args;
  TrainerState& state;
  TrainerControl& control;
  Trainer& trainer;
  /// on_log: the logged values. on_evaluate and on_predict: the metrics. Otherwise empty.
  const LogValues& values;
};

/// Observes the training loop, and can request it to log, evaluate, save or stop through `event.control`.
/// Events, their names and their order are Hugging Face's:
///
///     on_train_begin
///       on_epoch_begin
///         on_step_begin, on_substep_end (after each micro-batch but the last), on_pre_optimizer_step,
///         on_optimizer_step, [scheduler, zero_grad, global_step + 1], on_step_end,
///         [on_log], [on_prediction_step..., on_log, on_evaluate], [on_save]
///       on_epoch_end, [the same three, for what goes by epochs]
///     on_log, on_train_end
///
/// Override the events that you need. Each is called on every rank at the same point of the loop, in the
/// order of the callbacks, built-in ones first, in the thread that trains; on_prediction_step, called
/// different numbers of times, may not communicate. All set the same `event.control` on every rank. With
/// --max-recoveries, what follows on_optimizer_step may not communicate or change the training either: see
/// docs/reliability.md. An exception ends the training. Write lines by Accelerator::print.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

  /// The Trainer was constructed; there is no optimizer yet.
  virtual void on_init_end(CallbackContext& /*event*/) {}
  /// Model, optimizer and loader are ready, and no checkpoint has been read. Register objects for checkpoints
  /// here, with Accelerator::register_for_checkpointing.
  virtual void on_prepare(CallbackContext& /*event*/) {}
  /// The state is that of the checkpoint, if there was one. `event.control.should_training_stop` ends the
  /// training before its first step.
  virtual void on_train_begin(CallbackContext& /*event*/) {}
  /// After the last log; the best model has been loaded if requested. Not called after an exception.
  virtual void on_train_end(CallbackContext& /*event*/) {}
  /// Also called when a training resumes in the middle of an epoch.
  virtual void on_epoch_begin(CallbackContext& /*event*/) {}
  /// Not called when the job was told to stop.
  virtual void on_epoch_end(CallbackContext& /*event*/) {}
  /// Before the first micro-batch of an optimizer step.
  virtual void on_step_begin(CallbackContext& /*event*/) {}
  /// Gradients are averaged and clipped; the weights are still those of the previous step.
  virtual void on_pre_optimizer_step(CallbackContext& /*event*/) {}
  /// The weights are updated; the learning rate and global_step are not yet.
  virtual void on_optimizer_step(CallbackContext& /*event*/) {}
  /// After a micro-batch that is not the last of its step.
  virtual void on_substep_end(CallbackContext& /*event*/) {}
  /// global_step includes the step; requests made here are executed next.
  virtual void on_step_end(CallbackContext& /*event*/) {}
  /// `event.values` are the metrics, which are already logged; the best metric so far is not yet updated.
  virtual void on_evaluate(CallbackContext& /*event*/) {}
  /// `event.values` are the metrics.
  virtual void on_predict(CallbackContext& /*event*/) {}
  /// A checkpoint was written, or passed to the thread that writes it.
  virtual void on_save(CallbackContext& /*event*/) {}
  /// `event.values` are the logged values, including "epoch": the last entry of state.log_history.
  virtual void on_log(CallbackContext& /*event*/) {}
  /// After each batch of this rank in an evaluation. *Local*, the only event that is.
  virtual void on_prediction_step(CallbackContext& /*event*/) {}

  /// The key of state_dict() in trainer_state.json; several callbacks may have the same. Empty: no state is
  /// saved.
  virtual std::string name() const { return {}; }
  /// The state that must survive a restart, as JSON; `{"args": {...}, "attributes": {...}}` in Hugging Face's
  /// callbacks.
  virtual std::string state_dict() const { return "null"; }
  /// Restores the state when a training resumes. May throw DataError if it does not fit.
  virtual void load_state_dict(const std::string& /*state*/) {}
};

/// The first built-in callback: requests logs, evaluations, checkpoints and the end as the arguments say. In
/// your own list it must be the first.
class DefaultFlowCallback final : public TrainerCallback {
 public:
  /// Requests what is due by steps: by the state's logging_steps, eval_steps and save_steps, and at max_steps
  /// the end, with an evaluation and a checkpoint if these are by steps. *Local*.
  void on_step_end(CallbackContext& event) override;
  /// Requests what is due by epochs. *Local*.
  void on_epoch_end(CallbackContext& event) override;
};

/// Stops when the metric of the best model has not improved in `patience` consecutive evaluations. Hugging
/// Face's EarlyStoppingCallback, with the same state in trainer_state.json.
class EarlyStoppingCallback final : public TrainerCallback {
 public:
  /// An evaluation is better if it improves the metric by more than `threshold`, in the metric's unit.
  /// `patience` is a number of evaluations. *Local*. Throws UsageError for a patience below 1 or a threshold
  /// below 0.
  explicit EarlyStoppingCallback(std::int64_t patience = 1, double threshold = 0);

  /// Resets the count; a checkpoint then restores its own. *Local*.
  void on_prepare(CallbackContext& event) override;
  /// Stops a training that it has already stopped, and that is restarted with no more patience. Throws
  /// UsageError if there are no evaluations, or no metric for the best model. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Counts evaluations, and requests the end of the training after `patience` consecutive ones without
  /// improvement. One that lacks the metric, such as one of several data sets, is not counted. *Local*.
  void on_evaluate(CallbackContext& event) override;
  /// Hugging Face's key in trainer_state.json.
  std::string name() const override { return "EarlyStoppingCallback"; }
  /// Patience, threshold and the current count, as JSON. *Local*.
  std::string state_dict() const override;
  /// Restores the count. *Local*. Throws DataError if the text is not such a state.
  void load_state_dict(const std::string& state) override;

 private:
  std::int64_t patience_;
  double threshold_;
  std::int64_t counter_ = 0;
};

}  // namespace lockstep
