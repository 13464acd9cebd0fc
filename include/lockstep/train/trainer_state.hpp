#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// One entry of the log: the values of a step, as in `trainer_state.json`.
struct LogEntry {
  /// In the order in which they were logged; "epoch" is the last one.
  LogValues values;
  /// Optimizer steps done.
  std::int64_t step = 0;

  /// The value of that name, if there is one. *Local*.
  std::optional<double> find(const std::string& name) const;
};

/// Requests of callbacks to the loop. Names and meaning are Hugging Face's: should_log, should_evaluate and
/// should_save are reset when a step begins, and when they have been executed.
struct TrainerControl {
  /// Stop after this step, including what is due by epochs.
  bool should_training_stop = false;
  /// Continue with the next epoch after this step.
  bool should_epoch_stop = false;
  /// Write a checkpoint.
  bool should_save = false;
  /// Evaluate on the trainer's own data sets.
  bool should_evaluate = false;
  /// Log the mean loss since the last log, the gradient norm and the learning rate.
  bool should_log = false;
};

/// The progress of a training. Names and meaning are those of Hugging Face's TrainerState, and so is the file
/// `trainer_state.json` in each checkpoint: transformers can read what Lockstep writes, and vice versa. The
/// same on every rank. A plain value.
struct TrainerState {
  /// Epochs done, including the fraction of the current one.
  double epoch = 0;
  /// Optimizer steps done, over all restarts.
  std::int64_t global_step = 0;
  /// Optimizer steps of the whole training.
  std::int64_t max_steps = 0;
  /// Epochs of the whole training; the last one may be incomplete.
  std::int64_t num_train_epochs = 0;
  /// Steps between logs, evaluations and checkpoints, whatever unit the arguments use.
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  /// Samples of one rank in a micro-batch.
  std::int64_t train_batch_size = 0;
  /// Samples of all ranks per step; a resumed run should keep it.
  std::int64_t total_batch_size = 0;
  /// If a resumed run changed total_batch_size: the steps done by then, minus the steps of the new size that
  /// the same samples would have taken. max_steps includes it.
  std::int64_t step_offset = 0;
  /// All log entries, oldest first.
  std::vector<LogEntry> log_history = {};
  /// The best evaluation so far: its metric, its step, and its checkpoint if there is one.
  std::optional<double> best_metric = {};
  std::optional<std::int64_t> best_global_step = {};
  std::optional<std::string> best_model_checkpoint = {};
  /// Floating-point operations so far, as counted by Trainer::floating_point_operations, and training samples
  /// so far, without those that were repeated to fill a batch; over all ranks and restarts. Both are up to
  /// date in on_log, on_evaluate, on_save and on_train_end.
  double total_flos = 0;
  std::int64_t num_samples_seen = 0;
  /// State of callbacks as JSON, by their names (see TrainerCallback::state_dict); a list of states for
  /// several callbacks of one name.
  std::map<std::string, std::string> stateful_callbacks = {};
  /// Losses since the last log and since the beginning: sum over steps, and number of steps.
  double unlogged_loss = 0;
  std::int64_t unlogged_steps = 0;
  double total_loss = 0;
  /// Of the last step before a checkpoint, for an epoch whose log is due when training resumes: its learning
  /// rate, and its gradient norm if there is one.
  double learning_rate = 0;
  std::optional<double> grad_norm = {};
  /// Seconds spent in train() over all restarts, from the first step on: steps, evaluations and checkpoints,
  /// by rank 0's clock. The time of a killed job after its last checkpoint is not included.
  double train_seconds = 0;
  /// Work that a signal interrupted and that is done first when the training resumes: should_log,
  /// should_evaluate and should_save of global_step.
  TrainerControl unfinished = {};
  /// Whether `unfinished` belongs to a step: if should_epoch_stop or should_training_stop ends the epoch with
  /// it, on_epoch_end follows, with what is due at the end of an epoch.
  bool unfinished_step = false;
  /// Whether this rank is the first of the job, and of its node.
  bool is_world_process_zero = true;
  bool is_local_process_zero = true;
};

/// The text of `trainer_state.json`, indented by two spaces. Numbers that are not finite are written as in
/// Python: NaN, Infinity. *Local*. Throws UsageError, which names the callback, if a state is not JSON.
std::string trainer_state_text(const TrainerState& state);
/// Parses such a text; transformers may have written it. *Local*. Throws DataError, which names `file`, if
/// the text is invalid.
TrainerState trainer_state_from(const std::string& text, const std::string& file);

/// The name of the file.
constexpr const char* kTrainerStateFileName = "trainer_state.json";

/// The result of train().
struct TrainOutput {
  /// Optimizer steps done, over all restarts.
  std::int64_t global_step = 0;
  /// The mean loss of the steps of this run, without those before the checkpoint from which it resumed. 0 if
  /// it did none.
  double training_loss = 0;
  /// train_runtime, train_samples_per_second, train_steps_per_second, total_flos, train_loss (training_loss,
  /// if a step was done), epoch. All but total_flos and epoch are of this run only.
  LogValues metrics;
  /// The training was told to stop and has written a checkpoint to resume from: exit with kPreemptedExitCode.
  bool preempted = false;
};

}  // namespace lockstep
