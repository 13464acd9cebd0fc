#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <utility>

namespace lockstep {

namespace train {
class Gradients;
}

/// An optimizer as Accelerator::prepare gives it back: a handle on the program's own, which must outlive it.
/// Its steps and states are the program's optimizer's; what this adds is when to step. Copies are handles on
/// the same optimizer, though each remembers its own last step only. One thread at a time.
class AcceleratedOptimizer {
 public:
  /// Without `gradients` every step counts.
  explicit AcceleratedOptimizer(torch::optim::Optimizer& optimizer,
                                std::shared_ptr<train::Gradients> gradients = nullptr)
      : optimizer_(&optimizer), gradients_(std::move(gradients)) {}

  /// One step with the gradients as they are; nothing in the middle of an accumulation window, and with fp16
  /// nothing where a gradient is not finite. *Local*.
  void step();

  /// Clears the gradients; works on bucket views (see lockstep::zero_grad). Nothing in the middle of an
  /// accumulation window. *Local*.
  void zero_grad(bool set_to_none = true);

  /// Whether the last step was left out because a gradient was not finite. *Local*.
  bool step_was_skipped() const noexcept { return step_was_skipped_; }

  /// The optimizer itself.
  torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

 private:
  torch::optim::Optimizer* optimizer_;
  std::shared_ptr<train::Gradients> gradients_;
  bool step_was_skipped_ = false;
};

}  // namespace lockstep
