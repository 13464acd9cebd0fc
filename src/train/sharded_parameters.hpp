#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::train {

/// A sharded parameter and its model.
struct ShardedParameter {
  const FullyShardedDataParallelBase* model;
  at::Tensor tensor;
};

/// The parameter in "state.<parameter>.<field>", as the files of optimizers name their tensors.
std::string parameter_in(const std::string& name);

/// The parameters of an optimizer that belong to fully sharded models, by their names in its file. *Local*.
class ShardedParameters {
 public:
  ShardedParameters(const std::vector<const FullyShardedDataParallelBase*>& models,
                    const torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names);

  /// The parameter of whose elements this tensor of the optimizer's state has one value each; null for a step
  /// count, and for a parameter that is not sharded.
  const ShardedParameter* find(const std::string& name, const at::Tensor& tensor) const;

 private:
  std::map<std::string, ShardedParameter> parameters_;
};

}  // namespace lockstep::train
