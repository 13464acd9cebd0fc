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
  /// Number of initial backwards that average over all ranks.
  std::int64_t start_iteration = 0;
  /// The ranks that average with each other afterwards, such as those of one node. Without it, gradients are
  /// not averaged.
  std::optional<ProcessGroup> subgroup = std::nullopt;
};

/// Post-local SGD (arXiv:1808.07217), as torch.distributed's post_localSGD_hook: gradients are averaged over
/// all ranks at first, and then only within a subgroup. From then on, the parameters of all ranks must be
/// averaged periodically: see PeriodicModelAverager.
class PostLocalSgdHook : public CommHook {
 public:
  explicit PostLocalSgdHook(const PostLocalSgdOptions& options);
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

  /// The backwards so far. Checkpoints do not contain hooks: save it, and give it to the hook of the run that
  /// continues. *Local*, the same on every rank.
  std::int64_t iteration() const noexcept { return iteration_; }
  void set_iteration(std::int64_t iteration) noexcept { iteration_ = iteration; }

 private:
  PostLocalSgdOptions options_;
  std::int64_t iteration_ = 0;
};

struct PeriodicModelAveragerOptions {
  /// Steps between two averagings.
  std::int64_t period = 1;
  /// Initial steps without averaging: PostLocalSgdOptions::start_iteration.
  std::int64_t warmup_steps = 0;
};

/// Averages parameters over the ranks every `period` steps, as torch.distributed's PeriodicModelAverager.
class PeriodicModelAverager {
 public:
  /// Throws UsageError if the period is below 1 or warmup_steps is negative.
  PeriodicModelAverager(const ProcessGroup& group, const PeriodicModelAveragerOptions& options);

  /// Call it after every optimizer step. When averaging is due, parameters that have a gradient become their
  /// mean over the ranks: all ranks must have gradients for the same ones. *Collective*.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  /// The calls so far: PyTorch's `step`. Checkpoints do not contain it: save it, and give it to the averager
  /// of the run that continues, so that it averages after the same steps. *Local*, the same on every rank.
  std::int64_t step() const noexcept { return step_; }
  void set_step(std::int64_t step) noexcept { step_ = step; }

 private:
  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
  std::int64_t step_ = 0;
};

/// Local SGD (arXiv:1805.09767), as Accelerate's LocalSGD: while it exists, each rank steps with its own
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
/// Every rank must do the same number of steps. The model must outlive it. PostLocalSgdHook does the same
/// after an initial phase with averaged gradients.
class [[nodiscard]] LocalSgd {
 public:
  /// Throws UsageError if `steps` is below 1. *Local*.
  LocalSgd(DistributedDataParallelBase& model, std::int64_t steps);

  /// Call it after each optimizer step. Every `steps`-th call is *Collective*.
  void step();

  /// Averages the parameters a last time, unless they just were. *Collective*.
  void finish();

 private:
  void average();

  DistributedDataParallelBase& model_;
  std::int64_t period_;
  std::int64_t step_ = 0;
  DistributedDataParallelBase::NoSync silence_;
};

}  // namespace lockstep
