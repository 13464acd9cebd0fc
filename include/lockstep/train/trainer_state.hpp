#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// One entry of the log: the names and numbers of a step, as `trainer_state.json` keeps them.
struct LogEntry {
  /// In the order in which they were logged; "epoch" is the last of them.
  LogValues values;
  /// Optimizer steps done.
  std::int64_t step = 0;

  /// The number of that name, if there is one. *Local*.
  std::optional<double> find(const std::string& name) const;
};

/// What callbacks can ask of the loop. Names and meaning are Hugging Face's: should_log, should_evaluate and
/// should_save go down when a step begins, and when they have been done.
struct TrainerControl {
  /// End after this step, with what goes by epochs.
  bool should_training_stop = false;
  /// Go to the next epoch after this step.
  bool should_epoch_stop = false;
  /// Write a checkpoint.
  bool should_save = false;
  /// Evaluate on the trainer's own data sets.
  bool should_evaluate = false;
  /// Log the mean loss since the last time, the gradient norm and the learning rate.
  bool should_log = false;
};

/// Where a training is. Names and meaning are those of Hugging Face's TrainerState, and so is the file
/// `trainer_state.json` in each checkpoint: what it holds here, transformers can read, and the other way
/// round. The same on every rank. A plain value.
struct TrainerState {
  /// Passes done, with the share of the present one.
  double epoch = 0;
  /// Optimizer steps done, over all restarts.
  std::int64_t global_step = 0;
  /// Optimizer steps of the whole training.
  std::int64_t max_steps = 0;
  /// Passes of the whole training; the last one may be cut short.
  std::int64_t num_train_epochs = 0;
  /// Steps between logs, evaluations and checkpoints, whatever unit the arguments have.
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  /// Samples of one rank in a micro-batch.
  std::int64_t train_batch_size = 0;
  /// Samples of all ranks for one step: what a run that goes on should keep.
  std::int64_t total_batch_size = 0;
  /// All that was logged, oldest first.
  std::vector<LogEntry> log_history = {};
  /// The best evaluation so far: its metric, its step, and its checkpoint where it has one.
  std::optional<double> best_metric = {};
  std::optional<std::int64_t> best_global_step = {};
  std::optional<std::string> best_model_checkpoint = {};
  /// Floating-point operations so far, by Trainer::floating_point_operations.
  double total_flos = 0;
  /// What callbacks remember, as JSON, by their names (see TrainerCallback::state).
  std::map<std::string, std::string> stateful_callbacks = {};
  /// Losses since the last log and since the beginning: sum over steps, and number of steps.
  double unlogged_loss = 0;
  std::int64_t unlogged_steps = 0;
  double total_loss = 0;
  /// Seconds spent in train() over all restarts, from the first step on: steps, evaluations and checkpoints,
  /// by rank 0's clock. What a killed job did after its last checkpoint is not in it.
  double train_seconds = 0;
  /// What a signal interrupted and is to be done first when the training goes on: should_log,
  /// should_evaluate and should_save of global_step.
  TrainerControl unfinished = {};
  /// This rank is the first of the job; the first of its node.
  bool is_world_process_zero = true;
  bool is_local_process_zero = true;
};

/// The text of `trainer_state.json`, two blanks of indentation. Numbers that are not finite are written as
/// Python does: NaN, Infinity. *Local*.
std::string trainer_state_text(const TrainerState& state);
/// Reads such a text, also one that transformers wrote. *Local*. Throws DataError, naming `file`, for what is
/// none.
TrainerState trainer_state_from(const std::string& text, const std::string& file);

/// The name of the file.
constexpr const char* kTrainerStateFileName = "trainer_state.json";

/// What train() came to.
struct TrainOutput {
  /// Steps done since the beginning, over all restarts.
  std::int64_t global_step = 0;
  /// The mean loss of the steps that this run made: not of those before the checkpoint that it went on from.
  /// 0 where it made none.
  double training_loss = 0;
  /// train_runtime, train_samples_per_second, train_steps_per_second, total_flos, train_loss (training_loss,
  /// where a step was made), epoch. But for total_flos and epoch they are this run's alone.
  LogValues metrics;
  /// The training was told to stop, and has left a checkpoint to go on from: end with kPreemptedExitCode.
  bool preempted = false;
};

}  // namespace lockstep
