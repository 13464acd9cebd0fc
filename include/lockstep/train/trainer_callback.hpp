#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/trainer_state.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

class Trainer;

/// What an event of the training loop shows to callbacks. Lives for the call only.
struct CallbackContext {
  const TrainingArguments& args;
  TrainerState& state;
  TrainerControl& control;
  Trainer& trainer;
  /// on_log: what was logged. on_evaluate and on_predict: the metrics. Empty else.
  const LogValues& values;
};

/// Something that watches the training loop, and asks it to log, evaluate, save or stop through
/// `event.control`. Events, their names and their order are Hugging Face's:
///
///     on_train_begin
///       on_epoch_begin
///         on_step_begin, on_substep_end (after each micro-batch but the last), on_pre_optimizer_step,
///         on_optimizer_step, [scheduler, zero_grad, global_step + 1], on_step_end,
///         [on_log], [on_prediction_step..., on_log, on_evaluate], [on_save]
///       on_epoch_end, [the same three, for what goes by epochs]
///     on_log, on_train_end
///
/// Derive from it and override what matters. Every method is called on every rank, at the same point of the
/// loop but for on_prediction_step, of which ranks may have different numbers: so all others may talk to the
/// other ranks, and what they set in `event.control` must be the same everywhere. What they throw ends the
/// training. Callbacks are called in the order in which they were added, the library's own first; in the
/// thread of the training.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

  /// The Trainer has been made; there is no optimizer yet.
  virtual void on_init_end(CallbackContext& /*event*/) {}
  /// Model, optimizer and loader are ready, and no checkpoint has been read. What belongs
  /// into checkpoints is registered here, with Accelerator::register_for_checkpointing.
  virtual void on_prepare(CallbackContext& /*event*/) {}
  /// The state is that of the checkpoint, if there was one. `event.control.should_training_stop` ends the
  /// training before its first step.
  virtual void on_train_begin(CallbackContext& /*event*/) {}
  /// After the last log; the best model has been loaded where that is asked for. Not after an exception.
  virtual void on_train_end(CallbackContext& /*event*/) {}
  /// Also when a training goes on in the middle of an epoch.
  virtual void on_epoch_begin(CallbackContext& /*event*/) {}
  /// Not when a training was told to stop.
  virtual void on_epoch_end(CallbackContext& /*event*/) {}
  /// Before the first micro-batch of an optimizer step.
  virtual void on_step_begin(CallbackContext& /*event*/) {}
  /// Gradients are averaged and clipped; the weights are still those of the step before.
  virtual void on_pre_optimizer_step(CallbackContext& /*event*/) {}
  /// The weights are new; the learning rate and global_step are not.
  virtual void on_optimizer_step(CallbackContext& /*event*/) {}
  /// After a micro-batch that is not the last of its step.
  virtual void on_substep_end(CallbackContext& /*event*/) {}
  /// global_step counts the step; what is asked for here is done next.
  virtual void on_step_end(CallbackContext& /*event*/) {}
  /// `event.values` are the metrics, logged already; the best so far are still those before.
  virtual void on_evaluate(CallbackContext& /*event*/) {}
  /// `event.values` are the metrics.
  virtual void on_predict(CallbackContext& /*event*/) {}
  /// A checkpoint has been written, or handed to the thread that writes it.
  virtual void on_save(CallbackContext& /*event*/) {}
  /// `event.values` are what was logged, "epoch" among them; the last entry of state.log_history.
  virtual void on_log(CallbackContext& /*event*/) {}
  /// After each batch of this rank in an evaluation: *Local*, the only event that is.
  virtual void on_prediction_step(CallbackContext& /*event*/) {}

  /// The name under which trainer_state.json keeps state_dict(). Empty: nothing is kept.
  virtual std::string name() const { return {}; }
  /// What must survive a restart, as JSON; `{"args": {...}, "attributes": {...}}` in Hugging Face's
  /// callbacks.
  virtual std::string state_dict() const { return "null"; }
  /// Takes it back when a training goes on. May throw DataError for what does not fit.
  virtual void load_state_dict(const std::string& /*state*/) {}
};

/// The library's own first callback: when the arguments say to log, to evaluate, to save and to stop. In a
/// list of one's own it must come first.
class DefaultFlowCallback final : public TrainerCallback {
 public:
  /// Asks for what goes by steps: by the state's logging_steps, eval_steps and save_steps, and at max_steps
  /// for the end, with an evaluation and a checkpoint. *Local*.
  void on_step_end(CallbackContext& event) override;
  /// Asks for what goes by epochs. *Local*.
  void on_epoch_end(CallbackContext& event) override;
};

/// Stops when the metric of the best model has not got better in `patience` evaluations one after the other.
/// Hugging Face's EarlyStoppingCallback, its state in trainer_state.json too.
class EarlyStoppingCallback final : public TrainerCallback {
 public:
  /// An evaluation counts as better when it is by more than `threshold`, in the metric's unit. `patience` in
  /// evaluations, 1 or more. *Local*.
  explicit EarlyStoppingCallback(std::int64_t patience = 1, double threshold = 0)
      : patience_(patience), threshold_(threshold) {}

  /// Counts from 0, unless a checkpoint says otherwise. *Local*.
  void on_prepare(CallbackContext& event) override;
  /// Ends a training that it has ended before, and that is now started again with no more patience. Throws
  /// UsageError where nothing is evaluated, or no metric says what is better. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Counts an evaluation, and asks for the end of the training after `patience` in a row that were no
  /// better. One without the metric, as of another of several data sets, does not count. *Local*.
  void on_evaluate(CallbackContext& event) override;
  /// Hugging Face's name for it in trainer_state.json.
  std::string name() const override { return "EarlyStoppingCallback"; }
  /// Patience, threshold and the evaluations counted so far, as JSON. *Local*.
  std::string state_dict() const override;
  /// Takes the count back. *Local*. Throws DataError for what is no such state.
  void load_state_dict(const std::string& state) override;

 private:
  std::int64_t patience_;
  double threshold_;
  std::int64_t counter_ = 0;
};

}  // namespace lockstep
