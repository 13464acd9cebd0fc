#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

namespace lockstep::train {

/// Expires when the optimizer is destroyed, so that what prepare() returned for it may be dropped before.
///
/// Lockstep's optimizers have a Lifetime. LibTorch's have no such member, but own their state: `mark` becomes
/// an entry of it, as one of a parameter without elements, which steps do not find and LibTorch's archives
/// ignore. Of other classes nothing is known, such as those of
/// programs: for one, the result expires with `mark`.
std::weak_ptr<const void> watch(torch::optim::Optimizer& optimizer, const std::shared_ptr<const void>& mark);

}  // namespace lockstep::train
