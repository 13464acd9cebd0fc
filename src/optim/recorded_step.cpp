#include "optim/recorded_step.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/optim/fused_optimizer.hpp"

namespace lockstep::optim {

comm::GraphReplays* recorded_for(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty() || !parameters.front().is_cuda()) return nullptr;
  return comm::GraphReplays::recorded();
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

void check_recorded(const at::Tensor& state, const at::Tensor& recorded) {
  if (state.is_same(recorded)) return;
  throw UsageError(
      "the state of an optimizer was replaced after its step was recorded in a CUDA graph, for example by "
      "load_state: make a new GraphedStep");
}

}  // namespace lockstep::optim
