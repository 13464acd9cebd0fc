#include "train/preemption_sync.hpp"

#include <ATen/ops/full.h>

namespace lockstep::train {

bool PreemptionSync::ask(bool wanted) {
  if (group_.size() == 1) return agreed_ = agreed_ || wanted;
  if (exchange_.is_started()) agreed_ = exchange_.result().item<int>() != 0;
  if (!agreed_) exchange_.start(at::full({1}, wanted ? 1 : 0, at::kInt), ReduceOp::max);
  return agreed_;
}

}  // namespace lockstep::train
