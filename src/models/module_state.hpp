#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// A module's parameters and buffers, in the order of Python's state_dict.
inline std::vector<NamedTensor> state_of(torch::nn::Module& module) {
  return parallel::named_state_of(module);
}

}  // namespace lockstep::models
