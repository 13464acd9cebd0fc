#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/trainer_callback.hpp"

namespace lockstep {

/// The library's own second callback: opens the trackers of args.report_to when a training begins, gives them
/// what is logged, and closes them at its end. Names get a group as Hugging Face gives them: "eval/loss" for
/// eval_loss, "test/..." likewise, and "train/loss" for the rest.
class TrackerCallback final : public TrainerCallback {
 public:
  /// Throws Error where the files cannot be opened.
  void on_train_begin(CallbackContext& event) override;
  void on_log(CallbackContext& event) override;
  void on_train_end(CallbackContext& event) override;
};

/// Prints what is logged, a line each, on rank 0's standard output: {'loss': 0.25, 'epoch': 1}.
class PrinterCallback final : public TrainerCallback {
 public:
  void on_log(CallbackContext& event) override;
};

/// A progress bar over the steps on rank 0's standard error: time left, steps a second, the last loss and
/// learning rate; and the lines of PrinterCallback. The last of the library's own, unless
/// args.disable_tqdm is set: then PrinterCallback is.
class ProgressCallback final : public TrainerCallback {
 public:
  void on_train_begin(CallbackContext& event) override;
  void on_step_end(CallbackContext& event) override;
  void on_log(CallbackContext& event) override;
  void on_train_end(CallbackContext& event) override;

 private:
  /// While a training runs.
  std::optional<ProgressBar> bar_;
};

}  // namespace lockstep
