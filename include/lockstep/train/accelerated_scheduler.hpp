#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/optim/lr_scheduler.hpp"

namespace lockstep {

namespace train {
class Gradients;
/// Whether the optimizer has stepped: neither accumulation nor an overflow held it back.
bool has_stepped(const Gradients& gradients, const torch::optim::Optimizer& optimizer);
}  // namespace train

/// A scheduler as Accelerator::prepare gives it back: a handle on the program's own, which must outlive it.
/// One call is one optimizer step, on any number of ranks: inside an accumulation window that goes on, and
/// after a step that its optimizer left out for gradients that are not finite, step() does nothing. Call it
/// after the optimizer's. Checkpoints keep the scheduler's state. One thread at a time.
template <class Scheduler>
class AcceleratedScheduler {
 public:
  /// For Accelerator::prepare.
  AcceleratedScheduler(Scheduler& scheduler, std::shared_ptr<train::Gradients> gradients)
      : scheduler_(&scheduler), gradients_(std::move(gradients)) {}

  /// The scheduler's step, where its optimizer has stepped. *Local*.
  void step() requires requires(Scheduler& scheduler) { scheduler.step(); }
  {
    if (train::has_stepped(*gradients_, scheduler_->optimizer())) scheduler_->step();
  }
  /// With a metric: at any time. *Local*, with the same metric on every rank.
  void step(double metric) requires requires(Scheduler& scheduler) { scheduler.step(1.0); }
  { scheduler_->step(metric); }

  /// The learning rate of each parameter group, as it is now. *Local*.
  auto last_lr() const { return scheduler_->last_lr(); }

  /// The scheduler itself.
  Scheduler& scheduler() const noexcept { return *scheduler_; }

 private:
  Scheduler* scheduler_;
  std::shared_ptr<train::Gradients> gradients_;
};

}  // namespace lockstep
