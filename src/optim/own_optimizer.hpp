#pragma once

#include <torch/optim/optimizer.h>

#include "lockstep/optim/fused_optimizer.hpp"

namespace lockstep::optim {

/// The optimizer, if it is Adam, AdamW or SGD of this library. Null for others, and for classes derived from
/// these, whose step() may do more.
FusedOptimizer* find_own(torch::optim::Optimizer& optimizer);

/// A step with all gradients multiplied by `factor`, one float32 element of the device. Whether `.grad` is
/// multiplied as well is left open. An undefined factor is a usual step.
void step_multiplied(torch::optim::Optimizer& optimizer, const at::Tensor& factor);

}  // namespace lockstep::optim
