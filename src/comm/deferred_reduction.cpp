#include "comm/deferred_reduction.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::comm {

void DeferredReduction::start(const at::Tensor& values, ReduceOp op) {
  const at::Device device = group_.object_device();
  if (!device.is_cuda()) {
    values_ = values.clone();
    work_ = group_.all_reduce_async(values_, op);
    return;
  }
  if (!stream_) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  const c10::StreamGuard guard(*stream_);
  values_ = values.to(device, /*non_blocking=*/true);
  // The stream waits for it, not the host.
  group_.all_reduce_async(values_, op).wait();
  host_ = at::empty_like(values, values.options().pinned_memory(true)).copy_(values_, /*non_blocking=*/true);
  copied_.emplace(device.type());
  copied_->record(*stream_);
}

at::Tensor DeferredReduction::result() {
  if (work_) {
    work_->wait();
    work_.reset();
    return values_;
  }
  copied_->synchronize();
  copied_.reset();
  return host_;
}

}  // namespace lockstep::comm
