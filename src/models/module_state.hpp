#pragma once

#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// A module's parameters, then its buffers.
inline std::vector<NamedTensor> state_of(torch::nn::Module& module) {
  auto tensors = parallel::named_parameters_of(module);
  for (auto& buffer : parallel::named_buffers_of(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

}  // namespace lockstep::models
