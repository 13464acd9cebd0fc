#include "train/sharded_parameters.hpp"

#include <algorithm>

#include "lockstep/checkpoint/optimizer_state.hpp"

namespace lockstep::train {

std::string parameter_in(const std::string& name) {
  const std::size_t begin = std::string("state.").size();
  return name.substr(begin, name.rfind('.') - begin);
}

ShardedParameters::ShardedParameters(const std::vector<const FullyShardedDataParallelBase*>& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names) {
  // A parameter that is frozen stays sharded, and its optimizer keeps what it had.
  for (const auto& entry : optimizer_parameters(optimizer, names)) {
    const auto owner = std::ranges::find_if(
        models, [&](const auto* model) { return model->full_sizes(entry.tensor).has_value(); });
    if (owner != models.end()) parameters_.emplace(entry.name, ShardedParameter{*owner, entry.tensor});
  }
}

const ShardedParameter* ShardedParameters::find(const std::string& name, const at::Tensor& tensor) const {
  const auto found = parameters_.find(parameter_in(name));
  return found == parameters_.end() || tensor.scalar_type() == at::kLong ? nullptr : &found->second;
}

}  // namespace lockstep::train
