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
/// Internal: the shared state of accumulation, scaling and stepping.
class AccumulationWindow;
}  // namespace train

/// One micro-batch, from Accelerator::accumulate(). While it exists, `sync_gradients()` tells whether this
/// micro-batch ends its window; in the others gradients are not communicated, and prepared optimizers and
/// schedulers do nothing. This is still so after its end, until the next one, or a backward outside of any:
/// steps may follow the scope. It must not outlive the Accelerator and the models. *Local*, but every rank
/// does the same.
class [[nodiscard]] AccumulationStep {
 public:
  /// Used by Accelerator::accumulate. Disables communication of the models (see
  /// DistributedDataParallel::no_sync) unless the window ends here.
  AccumulationStep(std::shared_ptr<train::AccumulationWindow> gradients,
                   const std::vector<WrappedModel>& models);
  /// Ends the micro-batch. Outside of windows, every backward is a step.
  ~AccumulationStep();
  AccumulationStep(const AccumulationStep&) = delete;
  AccumulationStep& operator=(const AccumulationStep&) = delete;

 private:
  struct Silence;
  std::shared_ptr<train::AccumulationWindow> gradients_;
  std::unique_ptr<Silence> silence_;
};

/// The weight of a sum of losses, such as its number of tokens: a number of 0 or more, or a scalar tensor,
/// which the device may still be computing. A value.
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

/// The part of Accelerator that handles gradients; programs use it through an Accelerator.
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
  /// Throws UsageError if an option is out of range, and for fp16 on a CPU. *Local*.
  GradientAccumulation(const ProcessGroup& group, const AcceleratorOptions& options);

  // ---- Accumulation

  /// Starts a micro-batch: call it at the top of the loop, before forward; see AccumulationStep. Applies to
  /// `models`, or to all prepared ones. With several loaders, the last batch is that of one that is read in
  /// every micro-batch, or of all that are being read. *Local*.
  template <class... Models>
  AccumulationStep accumulate(Models&... models) {
    return accumulate_for({models...});
  }

  /// Whether this micro-batch, or after its end the last one, ends its window: gradients are averaged and
  /// optimizers step. True for a program without accumulate(). *Local*.
  bool sync_gradients() const noexcept;

  /// Micro-batches of one rank per optimizer step; a change takes effect in the next window. *Local*.
  std::int64_t gradient_accumulation_steps() const noexcept;
  /// Throws UsageError if `steps` is below 1.
  void set_gradient_accumulation_steps(std::int64_t steps);

  /// `const auto guard = accelerator.no_sync(ddp);`: see DistributedDataParallel::no_sync. *Local*.
  static WrappedModel::NoSync no_sync(WrappedModel model) { return WrappedModel::NoSync(model); }

  // ---- Backward

  /// Computes the gradients of `loss`, a scalar and the mean over this micro-batch. Inside accumulate() it is
  /// divided by the actual number of micro-batches in the window. *Collective* if the model is a
  /// DistributedDataParallel that averages. Throws CommunicationError if a peer is lost, TimeoutError if a
  /// rank is missing.
  void backward(const at::Tensor& loss);

  /// The same for a sum of losses and its weight, such as the losses of tokens and their number. At the end
  /// of the window, the gradients of all prepared models become those of the sum over all ranks and
  /// micro-batches divided by the sum of all weights, however the samples were distributed (but see
  /// GradientAccumulationOptions::weights_of_all_ranks). If all weights are 0, the gradients are 0. Further
  /// losses of the same micro-batch are divided by their own weights and added, as means would be, if the
  /// window has no other micro-batch. Throws UsageError if it has, if a weight is below 0, or if the window
  /// has losses without a weight. A weight that is a tensor is neither waited for nor checked: it must be 0
  /// or more.
  void backward(const at::Tensor& sum, const LossWeight& weight);

  // ---- Precision

  MixedPrecision mixed_precision() const noexcept;

  /// `const auto cast = accelerator.autocast();`: the scope runs under the mixed precision too. Prepared
  /// models do so by themselves. *Local*.
  Autocast autocast() const;

  /// Whether any prepared optimizer skipped its last step because a gradient was not finite (fp16); see
  /// AcceleratedOptimizer::step_was_skipped for a single one. *Local*.
  bool optimizer_step_was_skipped() const;

  /// Divides the gradients of all prepared optimizers by the loss scale (fp16), once per step. The clipping
  /// functions below do it themselves, for the optimizers of the given parameters. The next scale is computed
  /// once, after the last prepared optimizer has stepped; if not all of them step, before the next backward.
  /// After it, a step may be left out if the gradients are cleared; the step throws UsageError if a further
  /// backward has added to them. *Local*.
  void unscale_gradients();

  // ---- Clipping: at the end of a window, before the optimizers' steps

  /// Scales the gradients down so that their total norm is at most `max_norm`, and returns the norm before, a
  /// scalar on the gradients' device: torch.nn.utils.clip_grad_norm_. Does not synchronize with the device;
  /// `.item()` on the result does. Infinity leaves the gradients unchanged. In the middle of a window, clips
  /// nothing, and returns the norm of this rank's gradients so far (NaN for a fully sharded model, whose
  /// gradients are not there yet); call it at the end of a window only to save that time. *Local*: averaged
  /// gradients are equal on all ranks. Throws UsageError unless max_norm is above 0.
  ///
  /// All parameters of a fully sharded model are clipped together, by their norm over all ranks; then it is
  /// *Collective*, and throws UsageError for only some of the parameters, for norms other than 2, and for
  /// parameters of several models.
  at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                             double norm_type = 2);
  at::Tensor clip_grad_norm_(const std::vector<NamedTensor>& parameters, double max_norm,
                             double norm_type = 2);
  at::Tensor clip_grad_norm_(WrappedModel model, double max_norm, double norm_type = 2);

  /// Clamps each gradient's elements to [-clip_value, clip_value]. *Local*.
  void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
  void clip_grad_value_(const std::vector<NamedTensor>& parameters, double clip_value);
  void clip_grad_value_(WrappedModel model, double clip_value);

 protected:
  const std::shared_ptr<train::AccumulationWindow>& gradients() const noexcept { return gradients_; }
  /// Registers the communication hook of the options on a model. *Collective*.
  void add_hook(DistributedDataParallelBase& model);

 private:
  AccumulationStep accumulate_for(const std::vector<WrappedModel>& models);

  ProcessGroup group_;
  AcceleratorOptions options_;
  std::shared_ptr<train::AccumulationWindow> gradients_;
};

}  // namespace lockstep
