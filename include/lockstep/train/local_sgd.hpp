#pragma once

#include <cstdint>

#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep {

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
