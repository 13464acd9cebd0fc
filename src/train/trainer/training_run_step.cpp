#include <ATen/ATen.h>
#include <algorithm>
#include "lockstep/core/error.hpp"

#include "train/trainer/training_run.hpp"

namespace lockstep {
void TrainingRun::run_micro_batch(const Batch& batch) {
  if (micro_batches_in_step_++ == 0) {
    auto& control = impl_.control;
    control.should_log = control.should_evaluate = control.should_save = false;
    metric_of_step_.reset();
    impl_.delivered.end();
    call(&TrainerCallback::on_step_begin);
  }
  const auto window = impl_.accelerator.accumulate();
  impl_.last_loss = steps_->micro_batch(batch);
  meter_->add(impl_.last_loss);
  flops_ += trainer_.floating_point_operations(batch);
  samples_ += static_cast<double>(
      batch.valid.empty() ? batch.size() : std::count(batch.valid.begin(), batch.valid.end(), true));
  if (impl_.accelerator.sync_gradients()) return finish_step();
  call(&TrainerCallback::on_substep_end);
}

/// The epoch or the training ends in the middle of a step.
void TrainingRun::discard_window() {
  if (micro_batches_in_step_ == 0) return;
  micro_batches_in_step_ = 0;
  meter_->discard_step();
  steps_->discard();
}

void TrainingRun::finish_step() {
  micro_batches_in_step_ = 0;
  meter_->end_step();
  if (is_elastic_) share_step();
  // Asked before the step is committed: after a recovery, all ranks know the answer that some have acted on.
  time_is_over_ = time_is_up();
  grad_norm_ = steps_->clip();
  call(&TrainerCallback::on_pre_optimizer_step);
  steps_->step();
  call(&TrainerCallback::on_optimizer_step);
  step_schedule();
  steps_->clear();
  TrainerState& state = impl_.state;
  ++state.global_step;
  checkpoints_->count_step();
  // As in transformers: for a stream of unknown length, an epoch is the whole training.
  const double batches = batches_->has_size()
                             ? static_cast<double>(batches_->size())
                             : static_cast<double>(plan_.steps_per_epoch) *
                                   static_cast<double>(impl_.accelerator.gradient_accumulation_steps());
  state.epoch = static_cast<double>(batches_->epoch()) + static_cast<double>(batches_->position()) / batches;
  commit_step();
  end_step();
}

/// Nothing of this belongs to the step's state.
void TrainingRun::end_step() {
  TrainerState& state = impl_.state;
  // Makes this the last step, with everything that a last step does.
  if (time_is_over_) state.max_steps = state.global_step;
  between_steps([this] {
    call(&TrainerCallback::on_step_end);
    if (meter_->is_full()) fold_losses();
    log_evaluate_save();
  });
  if (preempted_) return;
  // If training ends at this step, it finishes normally instead of being preempted.
  const bool asked = impl_.accelerator.should_stop();
  if (asked && !impl_.control.should_training_stop) preempt();
}

/// Logs the learning rate that this step used.
void TrainingRun::step_schedule() {
  learning_rate_ = impl_.optimizer->param_groups().front().options().get_lr();
  if (impl_.scheduler && !impl_.accelerator.optimizer_step_was_skipped()) impl_.scheduler->step();
}

}  // namespace lockstep
