#include <ATen/ops/empty.h>

#include "checkpoint/safetensors_source.hpp"
#include "lockstep/core/error.hpp"
#include "train/broadcast_tensors.hpp"
#include "train/sharded_parameters.hpp"
#include "train/state/sharded_state.hpp"

namespace lockstep::train {

OptimizerState queue_optimizer_state(GatheredTensors& gathered, const ShardedModels& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names) {
  const ShardedParameters parameters({models.begin(), models.end()}, optimizer, names);
  OptimizerState state = optimizer_state(optimizer, names);
  const TensorMap own = state.tensors;
  for (auto& [name, form] : state.tensors) {
    const auto* const parameter = parameters.find(name, form);
    const auto sizes = parameter ? parameter->model->full_sizes(parameter->tensor) : std::nullopt;
    if (sizes) form = at::empty(*sizes, form.options().device(at::kMeta));
  }
  for (const auto& name : names_in_file_order(state.tensors)) {
    const at::Tensor& tensor = own.at(name);
    const auto* const parameter = parameters.find(name, tensor);
    if (parameter == nullptr) {
      gathered.add(name, [tensor] { return tensor; });
    } else {
      gathered.add(name,
                   [tensor, owner = *parameter] { return owner.model->gather_full(owner.tensor, tensor); });
    }
  }
  return state;
}

void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const TensorSource& tensors, const std::string& options, const ProcessGroup& group,
                       const std::string& where) {
  const ShardedParameters parameters(models, optimizer, names);
  std::string complaint;
  const auto own_part = [&](const std::string& name, const at::Tensor& whole) {
    const auto* const parameter = parameters.find(name, whole);
    if (parameter == nullptr) return whole;
    try {
      return parameter->model->take_part(parameter->tensor, whole);
    } catch (const DataError& error) {
      complaint = error.what();
      return at::Tensor();
    }
  };
  const OptimizerState mine{.tensors = broadcast_tensors(group, tensors, 0, own_part),
                            .options = group.broadcast_object(options)};
  if (!complaint.empty()) throw DataError(where + " does not fit the model: " + complaint);
  load_optimizer_state(optimizer, names, mine, where);
}

}  // namespace lockstep::train
