#include "lockstep/train/local_sgd.hpp"

#include <ATen/core/grad_mode.h>

#include "lockstep/core/error.hpp"

namespace lockstep {

LocalSgd::LocalSgd(DistributedDataParallelBase& model, std::int64_t steps)
    : model_(model), period_(steps), silence_(model) {
  if (steps < 1) throw UsageError("LocalSgd: the steps between two averages must be at least 1.");
}

void LocalSgd::step() {
  if (++step_ % period_ == 0) average();
}

void LocalSgd::finish() {
  if (step_ % period_ != 0) average();
  step_ = 0;
}

void LocalSgd::average() {
  const ProcessGroup& group = model_.process_group();
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<Work> exchanges;
  for (const auto& entry : model_.parameters())
    exchanges.push_back(group.all_reduce_async(entry.tensor.detach(), ReduceOp::avg));
  for (auto& exchange : exchanges) exchange.wait();
}

}  // namespace lockstep
