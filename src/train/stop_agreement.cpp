#include "stop_agreement.hpp"

#include <ATen/ATen.h>

namespace lockstep::train {

StopAgreement::StopAgreement(const ProcessGroup& group)
    : group_(group), flag_(at::zeros({1}, at::TensorOptions(group.object_device()).dtype(at::kInt))) {}

bool StopAgreement::ask(bool wanted) {
  if (group_.size() == 1) return agreed_ = agreed_ || wanted;
  take_result();
  if (agreed_) return true;
  flag_.fill_(wanted ? 1 : 0);
  exchange_ = group_.all_reduce_async(flag_, ReduceOp::max);
  return false;
}

void StopAgreement::take_result() {
  if (!exchange_) return;
  exchange_->wait();
  exchange_.reset();
  agreed_ = flag_.item<int>() != 0;
}

}  // namespace lockstep::train
