#pragma once

#include <torch/optim/optimizer.h>

namespace lockstep {

/// An optimizer as Accelerator::prepare gives it back: a handle on the program's own, which must outlive it.
class AcceleratedOptimizer {
 public:
  explicit AcceleratedOptimizer(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}

  /// One step with the gradients as they are. *Local*.
  void step();

  /// Clears the gradients; works on bucket views (see lockstep::zero_grad). *Local*.
  void zero_grad(bool set_to_none = true);

  /// The optimizer itself.
  torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

 private:
  torch::optim::Optimizer* optimizer_;
};

}  // namespace lockstep
