#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/train/accelerator_options.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "lockstep/train/wrapped_model.hpp"

namespace lockstep {

namespace train {
/// The library's own: what accumulation, scaling and stepping share.
class GradientState;
}  // namespace train

/// One micro-batch, from Accelerator::accumulate(). While it lives, `sync_gradients()` tells whether this
/// micro-batch ends its window; in the others nothing is sent, and prepared optimizers and schedulers do
/// nothing. It must not outlive the Accelerator and the models. *Local*, but every rank does the same.
class [[nodiscard]] AccumulationStep {
 public:
  /// For Accelerator::accumulate. Keeps the models silent (see DistributedDataParallel::no_sync) unless the
  /// window ends here.
  AccumulationStep(std::shared_ptr<train::GradientState> gradients, const std::vector<WrappedModel>& models);
  /// The micro-batch is over. What is outside of windows counts as a step of its own.
  ~AccumulationStep();
  AccumulationStep(const AccumulationStep&) = delete;
  AccumulationStep& operator=(const AccumulationStep&) = delete;

 private:
  struct Silence;
  std::shared_ptr<train::GradientState> gradients_;
  std::unique_ptr<Silence> silence_;
};

/// How much a sum of losses weighs, such as its number of tokens: a number of 0 or more, or a scalar tensor
/// of one, which may still be on its way on the device. A value.
class LossWeight {
 public:
  // Both convert, so that a Loss takes either.
  LossWeight(double weight);                                     // NOLINT(google-explicit-constructor)
  LossWeight(at::Tensor weight) : tensor_(std::move(weight)) {}  // NOLINT(google-explicit-constructor)
  /// The scalar tensor.
  const at::Tensor& tensor() const noexcept { return tensor_; }
  /// The number; waits for the device.
  double item() const;

 private:
  at::Tensor tensor_;
};

/// The part of Accelerator that has to do with gradients; a program uses it through an Accelerator.
///
///     for (auto& batch : batches) {
///       const auto step = accelerator.accumulate();
///       accelerator.backward(loss_of(ddp(batch["x"]), batch["y"]));
///       if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(ddp, 1.0);
///       opt.step();
///       scheduler.step();
///       opt.zero_grad();
///     }
class GradientAccumulation {
 public:
  /// Throws UsageError for options out of range, and for fp16 on a CPU. *Local*.
  GradientAccumulation(const ProcessGroup& group, const AcceleratorOptions& options);

  // ---- Accumulation

  /// A micro-batch begins: to be called at the top of the loop, before forward; see AccumulationStep. Holds
  /// for `models`, or for all prepared ones. The loader whose pass began last tells where its last batch is.
  /// *Local*.
  template <class... Models>
  AccumulationStep accumulate(Models&... models) {
    return accumulate_for({models...});
  }

  /// Whether this micro-batch ends its window, so that gradients are averaged and optimizers step. True
  /// outside of accumulate(). *Local*.
  bool sync_gradients() const noexcept;

  /// Micro-batches of one rank for one optimizer step; a change counts from the next window on. *Local*.
  std::int64_t gradient_accumulation_steps() const noexcept;
  /// Throws UsageError below 1.
  void set_gradient_accumulation_steps(std::int64_t steps);

  /// `const auto guard = accelerator.no_sync(ddp);`: see DistributedDataParallel::no_sync. *Local*.
  static WrappedModel::NoSync no_sync(WrappedModel model) { return WrappedModel::NoSync(model); }

  // ---- Backward

  /// Computes the gradients of `loss`, a scalar and the mean over this micro-batch; inside accumulate() it is
  /// divided by the number of micro-batches that its window really has. *Collective* when the model is a
  /// DistributedDataParallel that averages. Throws CommunicationError when a peer is lost meanwhile,
  /// TimeoutError when one does not come.
  void backward(const at::Tensor& loss);

  /// Likewise for a sum of losses and how much it weighs, such as the losses of tokens and their number. At
  /// the end of the window the gradients of all prepared models become those of the sum over all ranks and
  /// micro-batches divided by the sum of all weights: the same whatever way the samples were divided (but see
  /// GradientAccumulationOptions::weights_of_all_ranks). Where all weights are 0 the gradients are 0. Throws
  /// UsageError for a weight below 0, and where the window has losses without a weight. Not with
  /// optim::step_in_backward, which has stepped by then. A weight that is a tensor is not waited for, and not
  /// checked: it must be 0 or more.
  void backward(const at::Tensor& sum, const LossWeight& weight);

  // ---- Precision

  MixedPrecision mixed_precision() const noexcept;

  /// `const auto cast = accelerator.autocast();`: what the loop computes itself runs under the mixed
  /// precision too. Prepared models do so by themselves. *Local*.
  Autocast autocast() const;

  /// Whether some prepared optimizer left its last step out because a gradient was not finite (fp16); see
  /// AcceleratedOptimizer::step_was_skipped for each of them. *Local*.
  bool optimizer_step_was_skipped() const noexcept;

  /// Divides the gradients of all prepared optimizers by the loss scale (fp16), once a step. The clipping
  /// below does it by itself, for the optimizers of the parameters that it is given. The next scale is
  /// computed once, after the last prepared optimizer has stepped; where not all of them step, before the
  /// next backward. *Local*.
  void unscale_gradients();

  // ---- Clipping: at the end of a window, before the optimizers' steps

  /// Scales the gradients down so that their common norm is at most `max_norm`, and returns what it was, a
  /// scalar on the gradients' device: torch.nn.utils.clip_grad_norm_. Nothing waits for the device until
  /// `.item()` asks. With infinity gradients stay as they are. Inside a window that goes on: an undefined
  /// tensor. *Local*: averaged gradients are equal on all ranks. Throws UsageError unless max_norm is above
  /// 0. Of fully sharded models all parameters are clipped together, by their norm over all ranks:
  /// *Collective* then; UsageError for some of them, for other norms than 2, and for parameters of several
  /// models.
  at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                             double norm_type = 2);
  at::Tensor clip_grad_norm_(WrappedModel model, double max_norm, double norm_type = 2);

  /// Cuts each gradient's elements to [-clip_value, clip_value]. *Local*.
  void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
  void clip_grad_value_(WrappedModel model, double clip_value);

 protected:
  const std::shared_ptr<train::GradientState>& gradients() const noexcept { return gradients_; }
  /// Gives a model the communication hook of the options. *Collective*.
  void add_hook(DistributedDataParallelBase& model);

 private:
  AccumulationStep accumulate_for(const std::vector<WrappedModel>& models);

  ProcessGroup group_;
  AcceleratorOptions options_;
  std::shared_ptr<train::GradientState> gradients_;
};

}  // namespace lockstep
