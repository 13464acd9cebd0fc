#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {

/// The library's own second callback: opens the trackers of args.report_to when a training begins, gives them
/// what is logged, and closes them at its end. Names get a group as Hugging Face gives them: "eval/loss" for
/// eval_loss, "test/..." likewise, and "train/loss" for the rest. A training that goes on continues the files
/// after its checkpoint's step, so that each step is there once. Rank 0's process writes; elsewhere every
/// method is a call that does nothing, so all are *Local*.
class TrackerCallback final : public TrainerCallback {
 public:
  /// Closes files that an evaluation before the training opened. *Local*.
  void on_prepare(CallbackContext& event) override;
  /// Opens the files, with the arguments by which a run is judged as hyper-parameters. Throws Error where
  /// they cannot be opened, UsageError for a tracker of an unknown name.
  void on_train_begin(CallbackContext& event) override;
  /// Writes the values with global_step; opens the files again for an evaluation outside of a training.
  /// Throws Error where writing fails.
  void on_log(CallbackContext& event) override;
  /// Closes them, after a training that was told to stop too.
  void on_train_end(CallbackContext& event) override;

 private:
  void open(CallbackContext& event, bool for_training);

  bool is_open_ = false;
};

/// Prints what is logged, a line each, on rank 0's standard output: {'loss': 0.25, 'epoch': 1}.
class PrinterCallback final : public TrainerCallback {
 public:
  /// Prints the values in the order in which they were logged. *Local*.
  void on_log(CallbackContext& event) override;
};

/// A progress bar over the steps on rank 0's standard error: time left, steps a second, the last loss and
/// learning rate; and the lines of PrinterCallback. The last of the library's own, unless
/// args.disable_tqdm is set: then PrinterCallback is.
class ProgressCallback final : public TrainerCallback {
 public:
  /// Begins a bar of max_steps, with the steps of earlier runs as done; a training that ends by the clock has
  /// no total. *Local*.
  void on_train_begin(CallbackContext& event) override;
  /// Another step, and the samples a second of all ranks since the training began, behind what was logged.
  /// *Local*.
  void on_step_end(CallbackContext& event) override;
  /// Shows loss and learning rate in the bar, where they are among the values, and prints the line above it.
  /// *Local*.
  void on_log(CallbackContext& event) override;
  /// Ends the bar's line. *Local*.
  void on_train_end(CallbackContext& event) override;

 private:
  /// While a training runs.
  std::optional<ProgressBar> bar_;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t first_step_ = 0;
  bool has_logged_ = false;
};

}  // namespace lockstep
