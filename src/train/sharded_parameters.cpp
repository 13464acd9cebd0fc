#include "train/sharded_parameters.hpp"

#include "lockstep/checkpoint/optimizer_state.hpp"

namespace lockstep::train {

std::string parameter_in(const std::string& name) {
  const std::size_t begin = std::string("state.").size();
  return name.substr(begin, name.rfind('.') - begin);
}

ShardedParameters::ShardedParameters(const std::vector<const FullyShardedDataParallelBase*>& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names) {
  std::map<const void*, const FullyShardedDataParallelBase*> owners;
  for (const auto* model : models) {
    for (const auto& entry : model->parameters()) owners.emplace(entry.tensor.unsafeGetTensorImpl(), model);
  }
  for (const auto& entry : optimizer_parameters(optimizer, names)) {
    const auto owner = owners.find(entry.tensor.unsafeGetTensorImpl());
    if (owner != owners.end()) parameters_.emplace(entry.name, ShardedParameter{owner->second, entry.tensor});
  }
}

const ShardedParameter* ShardedParameters::find(const std::string& name, const at::Tensor& tensor) const {
  const auto found = parameters_.find(parameter_in(name));
  return found == parameters_.end() || tensor.scalar_type() == at::kLong ? nullptr : &found->second;
}

}  // namespace lockstep::train
