#pragma once

#include <cstdint>

#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// Local SGD (arXiv:1805.09767), as Accelerate's LocalSGD: while it lives, each rank steps by its own
/// gradients, and every `steps` steps the parameters become their mean over the ranks.
///
///     {
///       lockstep::LocalSgd local_sgd(accelerator, ddp, 8);
///       for (auto& batch : batches) {
///         accelerator.backward(loss_of(ddp(batch["x"]), batch["y"]));
///         opt.step();
///         local_sgd.step();
///         opt.zero_grad();
///       }
///       local_sgd.finish();
///     }
///
/// Every rank must make equally many steps. The model must outlive it.
class [[nodiscard]] LocalSgd {
 public:
  /// Throws UsageError for less than one step. *Local*.
  LocalSgd(const Accelerator& accelerator, DistributedDataParallelBase& model, std::int64_t steps)
      : model_(model), averager_(accelerator.process_group(), {.period = 1}), period_(steps), silence_(model) {
    // The averager's own period counts from 0 and would average after the first step.
    PeriodicModelAverager(accelerator.process_group(), {.period = steps});
  }

  /// After each optimizer step, before the gradients are cleared. *Collective* in every `steps`-th call.
  void step() {
    if (++step_ % period_ == 0) average();
  }

  /// The parameters become their mean for the last time, unless they are. *Collective*.
  void finish() {
    if (step_ % period_ != 0) average();
  }

 private:
  void average() {
    std::vector<at::Tensor> parameters;
    for (const auto& entry : model_.parameters()) parameters.push_back(entry.tensor);
    averager_.average_parameters(parameters);
  }

  DistributedDataParallelBase& model_;
  PeriodicModelAverager averager_;
  std::int64_t period_;
  std::int64_t step_ = 0;
  DistributedDataParallelBase::NoSync silence_;
};

}  // namespace lockstep
