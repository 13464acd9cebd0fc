#include "optim/recorded_step.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/optim/fused_optimizer.hpp"

namespace lockstep::optim {

comm::GraphReplays* recorded_for(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty()) return nullptr;
  return comm::GraphReplays::recorded(parameters.front().device());
}

void check_recordable(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<FusedOptimizer*>(&optimizer) != nullptr) return;
  if (optimizer.param_groups().empty() || recorded_for(optimizer.param_groups().front().params()) == nullptr)
    return;
  throw UsageError(
      "this optimizer's step cannot be recorded in a CUDA graph: each replay would use the learning rate and "
      "the step count of the recorded step. Use an optimizer of lockstep::optim");
}

void refuse_first_step() {
  throw UsageError(
      "an optimizer's first step for a parameter cannot be recorded in a CUDA graph: let warmup_steps of "
      "GraphedStep cover it");
}


}  // namespace lockstep::optim
