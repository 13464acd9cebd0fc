#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/trainer_callback.hpp"
#include "tally.hpp"

/// A bar for each epoch, and a line at its end: loss and accuracy of the training, on the images as they were
/// trained on, and of the validation.
class EpochReport final : public lockstep::TrainerCallback {
 public:
  /// `images`: in an epoch, of all ranks.
  EpochReport(const lockstep::Accelerator& accelerator, std::int64_t images)
      : images_(images), tally_(accelerator) {}

  /// Of the images trained on since the last line.
  Tally& tally() noexcept { return tally_; }

  void on_prepare(lockstep::CallbackContext& event) override;
  /// Ends a training whose epochs are done: with fewer ranks they would have had more steps.
  void on_train_begin(lockstep::CallbackContext& event) override;
  void on_epoch_begin(lockstep::CallbackContext& event) override;
  /// Throws Error where this rank's loss is not finite.
  void on_step_end(lockstep::CallbackContext& event) override;
  /// Likewise, and the line where nothing is evaluated.
  void on_epoch_end(lockstep::CallbackContext& event) override;
  void on_evaluate(lockstep::CallbackContext& event) override;
  void on_train_end(lockstep::CallbackContext& event) override;

 private:
  void print(const lockstep::CallbackContext& event);

  std::int64_t images_;
  Tally tally_;
  std::optional<lockstep::ProgressBar> bar_;
};
