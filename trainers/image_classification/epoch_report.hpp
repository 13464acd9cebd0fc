#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/trainer_callback.hpp"
#include "tally.hpp"

/// A progress bar per epoch, and a line at its end: loss and accuracy of training, on the augmented images,
/// and of validation.
class EpochReport final : public lockstep::TrainerCallback {
 public:
  /// `images`: images of all ranks per epoch.
  EpochReport(const lockstep::Accelerator& accelerator, std::int64_t images)
      : images_(images), tally_(accelerator) {}

  /// Sums over the images trained on since the last line.
  Tally& tally() noexcept { return tally_; }

  void on_prepare(lockstep::CallbackContext& event) override;
  /// Ends a training whose epochs are complete: resumed on fewer ranks, more steps would be left.
  void on_train_begin(lockstep::CallbackContext& event) override;
  void on_epoch_begin(lockstep::CallbackContext& event) override;
  void on_step_begin(lockstep::CallbackContext& event) override;
  void on_pre_optimizer_step(lockstep::CallbackContext& event) override;
  void on_optimizer_step(lockstep::CallbackContext& event) override;
  /// Throws Error if this rank's loss is not finite, or, in a job that replaces lost ranks, that of all.
  void on_step_end(lockstep::CallbackContext& event) override;
  /// Prints the line if there is no evaluation.
  void on_epoch_end(lockstep::CallbackContext& event) override;
  void on_evaluate(lockstep::CallbackContext& event) override;
  void on_train_end(lockstep::CallbackContext& event) override;

  /// The sums, for a process that replaces a lost one. Otherwise a checkpoint has them as those of each rank.
  std::string name() const override { return tally_.is_shared() ? "EpochReport" : ""; }
  std::string state_dict() const override { return tally_.text(); }
  void load_state_dict(const std::string& state) override { tally_.load_text(state); }

 private:
  void print(const lockstep::CallbackContext& event);

  std::int64_t images_;
  Tally tally_;
  std::optional<lockstep::ProgressBar> bar_;
};
