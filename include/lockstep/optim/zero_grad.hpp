#pragma once

#include <torch/optim/optimizer.h>

namespace lockstep {

/// Clears the gradients of every parameter of `optimizer`: drops them, or fills them with zeros in place.
/// Unlike `optimizer.zero_grad()`, it works on gradients that are views into DistributedDataParallel's
/// buckets; LibTorch tries to detach these and throws. *Local*.
void zero_grad(torch::optim::Optimizer& optimizer, bool set_to_none = true);

}  // namespace lockstep
