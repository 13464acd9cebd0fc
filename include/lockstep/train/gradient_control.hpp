#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {

/// How gradients are made: in what numbers, over how many micro-batches, and how they travel.
struct GradientOptions {
  MixedPrecision mixed_precision = MixedPrecision::no;
  GradientAccumulationOptions accumulation = {};
  /// For fp16.
  optim::GradScalerOptions grad_scaler = {};
  /// How prepared models average: "no" (plainly), "fp16", "bf16", "power_sgd" or "batched_power_sgd"; and
  /// what a PowerSGD hook's tensors travel as: "no", "fp16" or "bf16". Accelerate's names.
  std::string comm_hook = "no";
  std::string comm_wrapper = "no";
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
class GradientControl {
 public:
  /// Throws UsageError for options out of range, and for fp16 on a CPU. *Local*.
  GradientControl(const ProcessGroup& group, const GradientOptions& options);

  // ---- Accumulation

  /// A micro-batch begins: to be called at the top of the loop, before forward; see AccumulationStep. Holds
  /// for `models`, or for all prepared ones. The loader whose pass began last tells where its last batch is.
  /// *Local*.
  template <class... Models>
  AccumulationStep accumulate(Models&... models) const {
    return accumulate_for({static_cast<DistributedDataParallelBase*>(&models)...});
  }

  /// Whether this micro-batch ends its window, so that gradients are averaged and optimizers step. True
  /// outside of accumulate(). *Local*.
  bool sync_gradients() const noexcept;

  /// Micro-batches of one rank for one optimizer step; a change counts from the next window on. *Local*.
  std::int64_t gradient_accumulation_steps() const noexcept;
  /// Throws UsageError below 1.
  void set_gradient_accumulation_steps(std::int64_t steps) const;

  /// `const auto guard = accelerator.no_sync(ddp);`: see DistributedDataParallel::no_sync. *Local*.
  static DistributedDataParallelBase::NoSync no_sync(DistributedDataParallelBase& model) {
    return model.no_sync();
  }

  // ---- Backward

  /// Computes the gradients of `loss`, a scalar and the mean over this micro-batch; inside accumulate() it is
  /// divided by the number of micro-batches that its window really has. *Collective* when the model is a
  /// DistributedDataParallel that averages. Throws CommunicationError when a peer is lost meanwhile,
  /// TimeoutError when one does not come.
  void backward(const at::Tensor& loss) const;

  /// Likewise for a sum of losses and how much it weighs, such as the losses of tokens and their number. At
  /// the end of the window the gradients of all prepared models become those of the sum over all ranks and
  /// micro-batches divided by the sum of all weights: the same whatever way the samples were divided (but see
  /// GradientAccumulationOptions::weights_of_all_ranks). Where all weights are 0 the gradients are 0. Throws
  /// UsageError for a weight below 0, and where the window has losses without a weight. Not with
  /// optim::step_in_backward, which has stepped by then.
  void backward(const at::Tensor& sum, double weight) const;

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
  void unscale_gradients() const;

  // ---- Clipping: at the end of a window, before the optimizers' steps

  /// Scales the gradients down so that their common norm is at most `max_norm`, and returns what it was, a
  /// scalar on the gradients' device: torch.nn.utils.clip_grad_norm_. Nothing waits for the device until
  /// `.item()` asks. With infinity gradients stay as they are. Inside a window that goes on: an undefined
  /// tensor. *Local*: averaged gradients are equal on all ranks. Throws UsageError unless max_norm is above
  /// 0.
  at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                             double norm_type = 2) const;
  at::Tensor clip_grad_norm_(const DistributedDataParallelBase& model, double max_norm,
                             double norm_type = 2) const;

  /// Cuts each gradient's elements to [-clip_value, clip_value]. *Local*.
  void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) const;
  void clip_grad_value_(const DistributedDataParallelBase& model, double clip_value) const;

 protected:
  const std::shared_ptr<train::Gradients>& gradients() const noexcept { return gradients_; }
  /// Gives a model the communication hook of the options. *Collective*.
  void add_hook(DistributedDataParallelBase& model) const;

 private:
  AccumulationStep accumulate_for(std::vector<DistributedDataParallelBase*> models) const;

  ProcessGroup group_;
  GradientOptions options_;
  std::shared_ptr<train::Gradients> gradients_;
};

}  // namespace lockstep
