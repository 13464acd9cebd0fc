#include "lockstep/optim/zero_grad.hpp"

#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep {

void zero_grad(torch::optim::Optimizer& optimizer, bool set_to_none) {
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) clear_gradient(parameter, set_to_none);
  }
}

}  // namespace lockstep
