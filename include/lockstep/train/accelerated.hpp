#pragma once

#include <torch/optim/optimizer.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/step_outcome.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/train/frozen_model.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "lockstep/train/wrapped_model.hpp"

namespace lockstep {

/// The result of Accelerator::prepare for a model: a DistributedDataParallel, or a FullyShardedDataParallel
/// if AcceleratorOptions::fsdp_plugin is set, or a FrozenModel if no parameter requires a gradient. Its
/// forward runs under the Accelerator's mixed precision and returns float32 even if it computed in float16 or
/// bfloat16. Copies are handles to the same model.
///
/// Converts to a DistributedDataParallel, unless it has another wrapper (UsageError); a copy made in this way
/// loses the mixed precision. The graph keeps the dtypes that forward chose, so backward needs no autocast.
/// One thread at a time.
template <class Module>
class AcceleratedModel {
 public:
  /// Used by Accelerator::prepare. *Local*.
  AcceleratedModel(DistributedDataParallel<Module> model, MixedPrecision precision)
      : ddp_(std::move(model)), precision_(precision) {}
  AcceleratedModel(FullyShardedDataParallel<Module> model, MixedPrecision precision)
      : fsdp_(std::move(model)), precision_(precision) {}
  AcceleratedModel(FrozenModel<Module> model, MixedPrecision precision)
      : frozen_(std::move(model)), precision_(precision) {}

  /// Forward of the wrapper, with its errors. float16 and bfloat16 tensors in the output (see
  /// parallel::visit_tensors) become float32, so that losses are computed in full precision. *Collective*.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return in_precision(process_group().device(), precision_,
                        [&] { return run(std::forward<Inputs>(inputs)...); });
  }
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }

  /// The module itself.
  Module& module() { return frozen_ ? frozen_->module() : ddp_ ? ddp_->module() : fsdp_->module(); }
  const Module& module() const {
    return frozen_ ? frozen_->module() : ddp_ ? ddp_->module() : fsdp_->module();
  }
  /// Members of the module: `model->train()`.
  auto* operator->() { return &parallel::module_of(module()); }

  bool is_fully_sharded() const noexcept { return fsdp_.has_value(); }
  bool is_frozen() const noexcept { return frozen_.has_value(); }
  /// The wrapper itself. Throws UsageError if the model has the other wrapper.
  DistributedDataParallel<Module>& ddp() {
    refuse_frozen();
    if (!ddp_) throw UsageError("the model is fully sharded: this needs a DistributedDataParallel");
    return *ddp_;
  }
  FullyShardedDataParallel<Module>& fsdp() {
    refuse_frozen();
    if (!fsdp_) throw UsageError("the model is a DistributedDataParallel: this needs a fully sharded one");
    return *fsdp_;
  }
  operator DistributedDataParallel<Module>&() { return ddp(); }  // NOLINT(google-explicit-constructor)
  operator WrappedModel() { return wrapped(); }                  // NOLINT(google-explicit-constructor)

  // The same in all wrappers.

  const ProcessGroup& process_group() const {
    if (frozen_) return frozen_->process_group();
    return ddp_ ? ddp_->process_group() : fsdp_->process_group();
  }
  /// The trained parameters.
  const std::vector<NamedTensor>& parameters() const {
    if (frozen_) return FrozenModelBase::parameters();
    return ddp_ ? ddp_->parameters() : fsdp_->parameters();
  }
  WrappedModel::NoSync no_sync() { return WrappedModel::NoSync(wrapped()); }
  void zero_grad(bool set_to_none = true) { wrapped().zero_grad(set_to_none); }

  // The same as in DistributedDataParallel. They throw UsageError if the model has another wrapper.

  template <class Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    ddp().join(std::forward<Body>(body), options);
  }
  const DistributedDataParallelOptions& options() { return ddp().options(); }
  void register_comm_hook(std::shared_ptr<CommHook> hook) { ddp().register_comm_hook(std::move(hook)); }
  DdpStatistics statistics() { return ddp().statistics(); }

 private:
  template <class... Inputs>
  auto run(Inputs&&... inputs) {
    if constexpr (parallel::Shardable<Module>) {
      if (fsdp_) return (*fsdp_)(std::forward<Inputs>(inputs)...);
    }
    if (frozen_) return (*frozen_)(std::forward<Inputs>(inputs)...);
    return (*ddp_)(std::forward<Inputs>(inputs)...);
  }
  void refuse_frozen() const {
    if (frozen_)
      throw UsageError("the model has no parameter that requires a gradient, so it has no wrapper");
  }
  WrappedModel wrapped() {
    if (frozen_) return WrappedModel(*frozen_);
    return ddp_ ? WrappedModel(*ddp_) : WrappedModel(*fsdp_);
  }

  std::optional<DistributedDataParallel<Module>> ddp_;
  std::optional<FullyShardedDataParallel<Module>> fsdp_;
  std::optional<FrozenModel<Module>> frozen_;
  MixedPrecision precision_;
};

namespace train {
class AccumulationWindow;
}

/// The result of Accelerator::prepare for an optimizer: a handle to the program's optimizer, which must
/// outlive it. Steps and state are those of that optimizer; the handle only decides when to step. Copies are
/// handles to the same optimizer, but each remembers only its own last step. One thread at a time.
class AcceleratedOptimizer {
 public:
  /// Without `gradients`, every step() steps. `mark` lives as long as a copy of the handle.
  explicit AcceleratedOptimizer(torch::optim::Optimizer& optimizer,
                                std::shared_ptr<train::AccumulationWindow> gradients = nullptr,
                                std::shared_ptr<const void> mark = nullptr)
      : optimizer_(&optimizer), gradients_(std::move(gradients)), mark_(std::move(mark)) {}

  /// One step with the current gradients. Does nothing in the middle of an accumulation window, or with fp16
  /// if a gradient is not finite. *Local*.
  void step();
  /// Internal, for Trainer: the same with gradients multiplied by `factor`, one element of the device, if it is
  /// defined. Whether `.grad` is multiplied as well is left open.
  void step_by(const at::Tensor& factor);

  /// Clears the gradients, including bucket views (see lockstep::zero_grad). Does nothing in the middle of an
  /// accumulation window, so that it may stand at the top of the loop as well as at its end. *Local*.
  void zero_grad(bool set_to_none = true);

  /// Whether the last step was skipped because a gradient was not finite. With fp16, waits until the device
  /// knows. *Local*.
  bool step_was_skipped() const { return !last_step_; }

  /// The optimizer itself.
  torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

 private:
  torch::optim::Optimizer* optimizer_;
  std::shared_ptr<train::AccumulationWindow> gradients_;
  std::shared_ptr<const void> mark_;
  optim::StepOutcome last_step_ = {};
};

namespace train {
class AccumulationWindow;
/// Whether the optimizer has stepped: neither accumulation nor an overflow prevented it.
bool has_stepped(const AccumulationWindow& gradients, const torch::optim::Optimizer& optimizer);
}  // namespace train

/// The result of Accelerator::prepare for a scheduler: a handle to the program's scheduler, which must
/// outlive it. One call per optimizer step, on any number of ranks: step() does nothing in the middle of an
/// accumulation window, and after a step that the optimizer skipped because gradients were not finite. Call
/// it after the optimizer's step(). Checkpoints save the scheduler's state. One thread at a time.
template <class Scheduler>
class AcceleratedScheduler {
 public:
  /// Used by Accelerator::prepare.
  AcceleratedScheduler(Scheduler& scheduler, std::shared_ptr<train::AccumulationWindow> gradients)
      : scheduler_(&scheduler), gradients_(std::move(gradients)) {}

  /// Steps the scheduler if its optimizer has stepped. *Local*.
  void step() requires requires(Scheduler& scheduler) { scheduler.step(); }
  {
    if (train::has_stepped(*gradients_, scheduler_->optimizer())) scheduler_->step();
  }
  /// With a metric; always steps. *Local*, with the same metric on every rank.
  void step(double metric) requires requires(Scheduler& scheduler) { scheduler.step(1.0); }
  { scheduler_->step(metric); }

  /// The current learning rate of each parameter group. *Local*.
  auto last_lr() const { return scheduler_->last_lr(); }

  /// The scheduler itself.
  Scheduler& scheduler() const noexcept { return *scheduler_; }

 private:
  Scheduler* scheduler_;
  std::shared_ptr<train::AccumulationWindow> gradients_;
};

}  // namespace lockstep
