// A training step: the loss of each micro-batch, its gradient, and the optimizer's step.

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include "lockstep/core/error.hpp"
#include "lockstep/optim/zero_grad.hpp"

#include "training_loop.hpp"

namespace lockstep {
namespace {

/// Cross entropy with label smoothing; with `shift`, the logits of a token predict the label after it.
Loss smoothed(at::Tensor logits, at::Tensor labels, double smoothing, std::optional<bool> shift) {
  if (!shift && labels.dim() > 1 && logits.dim() == labels.dim() + 1) {
    throw UsageError(
        "label_smoothing_factor: the model's logits are those of tokens, and whether they predict the token's "
        "own label or the one after it is not known: set TrainerComponents::shift_labels to true for a causal "
        "language model that shifts its labels itself, otherwise to false");
  }
  if (shift.value_or(false)) {
    logits = logits.narrow(-2, 0, logits.size(-2) - 1);
    labels = labels.narrow(-1, 1, labels.size(-1) - 1);
  }
  labels = labels.reshape({-1});
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      torch::nn::functional::cross_entropy(logits.reshape({labels.size(0), -1}), labels, options);
  return {sum, (labels != -100).sum()};
}

}  // namespace

void TrainingRun::run_micro_batch(const Batch& batch) {
  if (micro_batches_in_step_++ == 0) {
    auto& control = impl_.control;
    control.should_log = control.should_evaluate = control.should_save = false;
    metric_of_step_.reset();
    call(&TrainerCallback::on_step_begin);
  }
  const auto window = impl_.accelerator.accumulate();
  impl_.last_loss = trainer_.training_step(batch);
  impl_.last_loss.value = impl_.last_loss.value.detach();
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
  // The prepared optimizer would wait for the step.
  zero_grad(impl_.accelerated_optimizer->optimizer());
}

void TrainingRun::finish_step() {
  micro_batches_in_step_ = 0;
  meter_->end_step();
  clip();
  call(&TrainerCallback::on_pre_optimizer_step);
  impl_.accelerated_optimizer->step();
  call(&TrainerCallback::on_optimizer_step);
  step_schedule();
  impl_.accelerated_optimizer->zero_grad();
  TrainerState& state = impl_.state;
  ++state.global_step;
  checkpoints_->count_step();
  // As in transformers: for a stream of unknown length, an epoch is the whole training.
  const double batches = batches_->has_size()
                             ? static_cast<double>(batches_->size())
                             : static_cast<double>(plan_.steps_per_epoch) *
                                   static_cast<double>(impl_.accelerator.gradient_accumulation_steps());
  state.epoch = static_cast<double>(batches_->epoch()) + static_cast<double>(batches_->position()) / batches;
  // Makes this the last step, with everything that a last step does.
  if (time_is_up()) state.max_steps = state.global_step;
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

Loss Trainer::training_step(const Batch& batch) {
  const Batch outputs = impl_->parts.model->forward(batch);
  const Loss loss = compute_loss(outputs, batch);
  if (!loss.value.defined()) {
    throw UsageError(
        "Trainer: there is no loss: the model's outputs have no \"loss\", and no "
        "TrainerComponents::compute_loss "
        "is set");
  }
  if (loss.weight) {
    impl_->accelerator.backward(loss.value, *loss.weight);
  } else {
    impl_->accelerator.backward(loss.value);
  }
  return loss;
}

Loss Trainer::compute_loss(const Batch& outputs, const Batch& batch) {
  if (impl_->parts.compute_loss) return impl_->parts.compute_loss(outputs, batch);
  const double smoothing = impl_->args.label_smoothing_factor;
  if (smoothing > 0 && outputs.contains("logits") && batch.contains("labels"))
    return smoothed(outputs["logits"], batch["labels"], smoothing, impl_->parts.shift_labels);
  if (outputs.contains("loss_sum")) return {outputs["loss_sum"], outputs["loss_weight"]};
  return {outputs.contains("loss") ? outputs["loss"] : at::Tensor()};
}

/// A limit of infinity leaves the gradients unchanged and only measures their norm.
void TrainingRun::clip() {
  const double limit = impl_.args.max_grad_norm;
  std::vector<at::Tensor> parameters;
  for (const auto& entry : trainer_.model().parameters()) {
    if (entry.tensor.grad().defined()) parameters.push_back(entry.tensor);
  }
  grad_norm_ = impl_.accelerator.clip_grad_norm_(parameters,
                                                 limit > 0 ? limit : std::numeric_limits<double>::infinity());
}

/// Logs the learning rate that this step used.
void TrainingRun::step_schedule() {
  learning_rate_ = impl_.optimizer->param_groups().front().options().get_lr();
  if (impl_.scheduler && !impl_.accelerator.optimizer_step_was_skipped()) impl_.scheduler->step();
}

}  // namespace lockstep

namespace lockstep::train {
namespace {

/// Number of pending steps after which fold() is called, to bound the scalars kept on a device.
constexpr std::size_t kMostSteps = 256;

/// A total weight of 0 has a sum of 0.
constexpr double kSmallestWeight = std::numeric_limits<double>::min();

}  // namespace

void LossMeter::add(const Loss& loss) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = loss.value.detach().to(at::kDouble);
  sum_ = sum_.defined() ? sum_ + value : value;
  weighted_ = loss.weight.has_value();
  if (weighted_) {
    const at::Tensor weight = loss.weight->tensor().detach().to(at::kDouble).reshape({});
    weight_ = weight_.defined() ? weight_ + weight : weight;
  }
  ++micro_batches_;
}

void LossMeter::end_step() {
  // Without weights, a step's loss is the mean over its micro-batches, then over the ranks.
  const bool shared = weighted_ && weights_of_all_ranks_;
  // Without waiting for the device.
  if (weighted_) weight_ = weight_.to(sum_.device(), /*non_blocking=*/true);
  if (weighted_ && !shared) sum_ = sum_ / weight_.clamp_min(kSmallestWeight);
  if (!weighted_) sum_ = sum_ / static_cast<double>(micro_batches_);
  sums_.push_back(sum_.reshape({1}));
  weights_.push_back(shared ? weight_.reshape({1}) : at::ones({1}, sum_.options()));
  discard_step();
}

void LossMeter::discard_step() {
  sum_ = weight_ = at::Tensor();
  micro_batches_ = 0;
}

bool LossMeter::is_full() const noexcept { return sums_.size() >= kMostSteps; }

std::vector<double> LossMeter::fold() {
  std::vector<double> losses;
  if (sums_.empty()) return losses;
  const at::NoGradGuard no_grad;
  at::Tensor both = accelerator_.reduce(at::stack({at::cat(sums_), at::cat(weights_)})).cpu();
  for (std::int64_t step = 0; step < both.size(1); ++step) {
    const double weight = both[1][step].item<double>();
    losses.push_back(weight > 0 ? both[0][step].item<double>() / weight : 0);
  }
  sums_.clear();
  weights_.clear();
  return losses;
}

}  // namespace lockstep::train
