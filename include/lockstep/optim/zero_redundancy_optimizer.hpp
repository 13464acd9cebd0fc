#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::optim {

struct ZeroRedundancyOptions {
  /// Small parameters are stepped and travel together in buckets of about this many MiB; those of 1 MiB and
  /// more each alone, without a copy.
  double bucket_cap_mb = 25.0;
};

/// An optimizer whose state is divided over the ranks of a group: the first stage of ZeRO (Rajbhandari et
/// al., 2020), torch.distributed.optim.ZeroRedundancyOptimizer. Each rank keeps the state of its own share of
/// the parameters only, steps these, and gets the others' new values from the ranks that own them. With
/// AdamW on n ranks a rank holds about 8 / n bytes of state for each float32 parameter in place of 8. The
/// parameters get the same bits as from the optimizer inside on every rank.
///
///     lockstep::optim::ZeroRedundancyOptimizer optimizer(
///         lockstep::optim::AdamW(model->parameters(), {.lr = 1e-3}), accelerator.process_group());
///     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
///
/// Gradients must be equal on all ranks, as DistributedDataParallel leaves them. The optimizer inside is any
/// of torch::optim or of this library that keeps its state parameter by parameter: all but LBFGS. Learning
/// rates and other options are read from this object's param_groups() at each step, so schedulers,
/// GradScaler and clipping work on it as on any other. Accelerator's checkpoints hold the whole state, as if
/// it were not divided, and can be loaded on any number of ranks, with this class or without; LibTorch's
/// archives of this object hold no state. In a group of one it is the optimizer inside.
///
/// Who owns what is PyTorch's rule: in each group the largest parameter first, each to the rank that has the
/// fewest elements so far. One thread at a time.
class ZeroRedundancyOptimizer : public torch::optim::Optimizer {
 public:
  /// Takes over `inner`, made for all parameters as if for one rank; what state it has of other ranks'
  /// parameters is dropped. *Collective*. Throws UsageError for LBFGS and for sizes out of range,
  /// CommunicationError on every rank when the ranks' parameters differ.
  ZeroRedundancyOptimizer(std::unique_ptr<torch::optim::Optimizer> inner, const ProcessGroup& group,
                          const ZeroRedundancyOptions& options = {});
  template <std::derived_from<torch::optim::Optimizer> Inner>
  ZeroRedundancyOptimizer(Inner inner, const ProcessGroup& group, const ZeroRedundancyOptions& options = {})
      : ZeroRedundancyOptimizer(std::make_unique<Inner>(std::move(inner)), group, options) {}
  ~ZeroRedundancyOptimizer() override;

  /// Steps this rank's share bucket by bucket and sends each bucket while the next one is stepped; when it
  /// returns, all parameters have their new values. `closure`, if any, computes the loss again first.
  /// *Collective*. Throws UsageError when parameters were added after the construction.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// The rank of the group that keeps the state of this parameter. *Local*. Throws UsageError for one that
  /// the optimizer has not.
  int owner_of(const at::Tensor& parameter) const;

  const ProcessGroup& process_group() const;

  /// The optimizer inside: with all parameters, and the state of this rank's. Whoever fills it with the whole
  /// state, as from a checkpoint, calls take_over() then. *Local*.
  torch::optim::Optimizer& local_optimizer() const;
  /// Drops from the optimizer inside what belongs to other ranks, and takes over its options. *Local*.
  void take_over();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::optim
