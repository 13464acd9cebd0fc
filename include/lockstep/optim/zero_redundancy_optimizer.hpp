#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/lifetime.hpp"
#include "lockstep/optim/zero_grad.hpp"

namespace lockstep::optim {

struct ZeroRedundancyOptions {
  /// Small parameters are stepped and sent together in buckets of about this many MiB; those of 1 MiB and
  /// more are sent alone, without a copy if they are contiguous.
  double bucket_cap_mb = 25.0;
};

/// An optimizer whose state is sharded over the ranks of a group: the first stage of ZeRO (Rajbhandari et
/// al., 2020), torch.distributed.optim.ZeroRedundancyOptimizer. Each rank only keeps the state of its share
/// of the parameters, steps these, and receives the new values of the others from the ranks that own them.
/// With AdamW on n ranks, a rank holds about 8 / n bytes of state per float32 parameter instead of 8. The
/// parameters are bit-identical to those that the inner optimizer would compute on every rank.
///
///     lockstep::optim::ZeroRedundancyOptimizer optimizer(
///         lockstep::optim::AdamW(model->parameters(), {.lr = 1e-3}), accelerator.process_group());
///     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
///
/// Gradients must be equal on all ranks, as after DistributedDataParallel. The inner optimizer is any of
/// torch::optim or Lockstep that keeps its state per parameter: all but LBFGS. Learning rates and other
/// options are read from this object's param_groups() at each step, so schedulers, GradScaler and clipping
/// work as on any optimizer. Accelerator's checkpoints contain the full, unsharded state, and can be loaded
/// on any number of ranks, with or without this class; LibTorch's archives of this object contain no state.
/// In a group of one, it behaves as the inner optimizer.
///
/// Parameters are assigned by PyTorch's rule: in each group the largest parameter first, each to the rank
/// that has the fewest elements so far. One thread at a time.
class ZeroRedundancyOptimizer : public torch::optim::Optimizer {
 public:
  /// Takes ownership of `inner`, which must be created for all parameters as if for one rank; state of other
  /// ranks' parameters is dropped. *Collective*. Throws UsageError for LBFGS and if bucket_cap_mb is out of
  /// range, CommunicationError on every rank if the ranks' parameters differ.
  ZeroRedundancyOptimizer(std::unique_ptr<torch::optim::Optimizer> inner, const ProcessGroup& group,
                          const ZeroRedundancyOptions& options = {});
  template <std::derived_from<torch::optim::Optimizer> Inner>
  ZeroRedundancyOptimizer(Inner inner, const ProcessGroup& group, const ZeroRedundancyOptions& options = {})
      : ZeroRedundancyOptimizer(std::make_unique<Inner>(std::move(inner)), group, options) {}
  ~ZeroRedundancyOptimizer() override;

  /// Steps this rank's share bucket by bucket, and sends each bucket while the next one is stepped. On
  /// return, all parameters have their new values. `closure`, if any, is called first to compute the loss,
  /// which is returned. *Collective*. Throws UsageError if parameters were added after the construction.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// As LibTorch's, and also for gradients that are views into DistributedDataParallel's buckets. *Local*.
  void zero_grad(bool set_to_none = true) { lockstep::zero_grad(*this, set_to_none); }

  /// Of this object: checkpoints use it. *Local*.
  const Lifetime& lifetime() const noexcept { return lifetime_; }

  /// The rank in the group that keeps the state of this parameter. *Local*. Throws UsageError if the
  /// optimizer does not have the parameter.
  int owner_of(const at::Tensor& parameter) const;

  const ProcessGroup& process_group() const;

  /// The inner optimizer, with all parameters and the state of this rank's share. After loading the full
  /// state into it, for example from a checkpoint, call take_over(). *Local*.
  torch::optim::Optimizer& local_optimizer() const;
  /// Drops the state of other ranks' parameters from the inner optimizer, and copies its options to this
  /// object. *Local*.
  void take_over();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Lifetime lifetime_;
};

}  // namespace lockstep::optim
