#include "lockstep/train/accelerated.hpp"

#include "lockstep/comm/trace.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "optim/own_optimizer.hpp"
#include "optim/recorded_step.hpp"
#include "train/accumulation_window.hpp"

namespace lockstep {

bool train::has_stepped(const AccumulationWindow& gradients, const torch::optim::Optimizer& optimizer) {
  return gradients.syncs() && !gradients.skipped(optimizer);
}

void AcceleratedOptimizer::step() { step_by({}); }

void AcceleratedOptimizer::step_by(const at::Tensor& factor) {
  if (gradients_ && !gradients_->syncs()) return;
  optim::check_recordable(*optimizer_);
  process_heartbeat().working("optimizer");
  const trace::Range range("optimizer");
  if (gradients_) {
    last_step_ = gradients_->step(*optimizer_, factor);
  } else {
    optim::step_multiplied(*optimizer_, factor);
  }
  process_heartbeat().finished_step();
}

void AcceleratedOptimizer::zero_grad(bool set_to_none) {
  if (gradients_ && !gradients_->may_clear(*optimizer_)) return;
  lockstep::zero_grad(*optimizer_, set_to_none && !(gradients_ && gradients_->keeps_gradients()));
}

}  // namespace lockstep
