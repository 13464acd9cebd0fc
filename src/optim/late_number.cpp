#include "optim/late_number.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "comm/cuda/graph_recorder.hpp"

namespace lockstep::optim {
namespace {

bool is_being_recorded(const at::Tensor& number) {
  comm::GraphRecorder* const recorder = comm::GraphRecorder::of(number.device());
  return recorder != nullptr && recorder->is_recording();
}

}  // namespace

LateNumber::LateNumber(const at::Tensor& number)
    : number_(number.detach()), is_recorded_(is_being_recorded(number)) {
  if (!number_.is_cuda() || is_recorded_) return;
  const at::NoGradGuard no_grad;
  host_ = at::empty(number_.sizes(), number_.options().device(at::kCPU).pinned_memory(true));
  host_.copy_(number_, /*non_blocking=*/true);
  copied_.emplace(at::kCUDA);
  copied_->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(number_.device()));
  number_.reset();
}

bool LateNumber::has_arrived() const { return !is_recorded_ && (!copied_ || copied_->query()); }

double LateNumber::get() {
  if (!host_.defined()) return number_.item<double>();
  if (copied_) copied_->synchronize();
  copied_.reset();
  return host_.item<double>();
}

}  // namespace lockstep::optim
