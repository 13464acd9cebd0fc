#include "optim/own_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>

#include <typeinfo>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "optim/step_factors.hpp"

namespace lockstep::optim {

FusedOptimizer* find_own(torch::optim::Optimizer& optimizer) {
  const auto& type = typeid(optimizer);
  const bool is_own = type == typeid(Adam) || type == typeid(AdamW) || type == typeid(SGD);
  return is_own ? static_cast<FusedOptimizer*>(&optimizer) : nullptr;
}

void step_multiplied(torch::optim::Optimizer& optimizer, const at::Tensor& factor) {
  if (FusedOptimizer* own = factor.defined() ? find_own(optimizer) : nullptr) {
    own->step_by({.factor = factor});
    return;
  }
  if (factor.defined()) {
    const at::NoGradGuard no_grad;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        const at::Tensor& gradient = parameter.grad();
        if (gradient.defined()) gradient.mul_(factor.to(gradient.device()));
      }
    }
  }
  optimizer.step();
}

}  // namespace lockstep::optim
