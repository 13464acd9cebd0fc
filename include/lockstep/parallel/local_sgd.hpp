#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep {

struct PostLocalSgdOptions {
  /// Backwards that average over all ranks first.
  std::int64_t start_iteration = 0;
  /// The ranks that average with each other afterwards, such as those of one node; without it, gradients
  /// stay as they are.
  std::optional<ProcessGroup> subgroup = std::nullopt;
};

/// Post-local SGD (arXiv:1808.07217), as torch.distributed's post_localSGD_hook: gradients are averaged over
/// all ranks at first, and then within a subgroup only. From then on the parameters of all ranks must be
/// averaged now and then: see PeriodicModelAverager.
class PostLocalSgdHook : public CommHook {
 public:
  explicit PostLocalSgdHook(const PostLocalSgdOptions& options);
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

 private:
  PostLocalSgdOptions options_;
  std::int64_t iteration_ = 0;
};

struct PeriodicModelAveragerOptions {
  /// Steps from one averaging to the next.
  std::int64_t period = 1;
  /// Steps without averaging first: PostLocalSgdOptions::start_iteration.
  std::int64_t warmup_steps = 0;
};

/// Averages parameters over the ranks every few steps, as torch.distributed's PeriodicModelAverager.
class PeriodicModelAverager {
 public:
  /// Throws UsageError for a period below 1 and for negative warmup_steps.
  PeriodicModelAverager(const ProcessGroup& group, const PeriodicModelAveragerOptions& options);

  /// To be called after every optimizer step. When it is time, those parameters that have a gradient become
  /// their mean over the ranks: all ranks must have gradients for the same ones. *Collective*.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
  std::int64_t step_ = 0;
};

/// Local SGD (arXiv:1805.09767), as Accelerate's LocalSGD: while it lives, each rank steps by its own
/// gradients, and every `steps` steps the parameters become their mean over the ranks.
///
///     lockstep::LocalSgd local_sgd(ddp, 8);
///     for (auto& batch : batches) {
///       accelerator.backward(loss_of(ddp(batch["x"]), batch["y"]));
///       opt.step();
///       opt.zero_grad();
///       local_sgd.step();
///     }
///     local_sgd.finish();
///
/// Every rank must make equally many steps. The model must outlive it. See PostLocalSgdHook for the same
/// after a beginning with averaged gradients.
class [[nodiscard]] LocalSgd {
 public:
  /// Throws UsageError for less than one step. *Local*.
  LocalSgd(DistributedDataParallelBase& model, std::int64_t steps);

  /// After each optimizer step. *Collective* in every `steps`-th call.
  void step();

  /// The parameters become their mean for the last time, unless they are. *Collective*.
  void finish();

 private:
  void average();

  DistributedDataParallelBase& model_;
  std::int64_t period_;
  std::int64_t step_ = 0;
  DistributedDataParallelBase::NoSync silence_;
};

}  // namespace lockstep
