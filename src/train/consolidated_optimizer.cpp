#include "lockstep/train/consolidated_optimizer.hpp"

#include <ATen/ops/empty.h>

#include <map>

#include "broadcast_tensors.hpp"
#include "checkpoint/safetensors_source.hpp"
#include "lockstep/core/error.hpp"
#include "train/state/sharded_state.hpp"

namespace lockstep {
namespace {

/// The parameter in "state.<parameter>.<field>".
std::string parameter_in(const std::string& name) {
  const std::size_t begin = std::string("state.").size();
  return name.substr(begin, name.rfind('.') - begin);
}

std::map<std::string, int> owners_by_name(const optim::ZeroRedundancyOptimizer& optimizer,
                                          const std::vector<NamedTensor>& names) {
  std::map<std::string, int> owners;
  for (const auto& entry : optimizer_parameters(optimizer.local_optimizer(), names))
    owners.emplace(entry.name, optimizer.owner_of(entry.tensor));
  return owners;
}

}  // namespace

OptimizerState consolidate_optimizer_state(const optim::ZeroRedundancyOptimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep) {
  const OptimizerState own = optimizer_state(optimizer.local_optimizer(), names);
  const auto& group = optimizer.process_group();
  OptimizerState whole{.tensors = {}, .options = own.options};
  for (int rank = 0; rank < group.size(); ++rank)
    whole.tensors.merge(train::broadcast_tensors(
        group, own.tensors, rank,
        [&](const auto& /*name*/, const at::Tensor& tensor) { return keep ? tensor : at::Tensor(); }));
  return whole;
}

void load_consolidated(optim::ZeroRedundancyOptimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where) {
  const auto owners = owners_by_name(optimizer, names);
  const int self = optimizer.process_group().rank();
  const auto own = [&](const std::string& name, const at::Tensor& tensor) {
    const auto found = owners.find(parameter_in(name));
    // load_optimizer_state() below rejects parameters without an owner.
    return found == owners.end() || found->second == self ? tensor : at::Tensor();
  };
  const OptimizerState share{.tensors = train::broadcast_tensors(group, state.tensors, 0, own),
                             .options = group.broadcast_object(state.options)};
  load_optimizer_state(optimizer.local_optimizer(), names, share, where);
  optimizer.take_over();
}

namespace {

/// A sharded parameter and its model.
struct ShardedParameter {
  const FullyShardedDataParallelBase* model;
  at::Tensor tensor;
};

using ShardedParameters = std::map<std::string, ShardedParameter>;

ShardedParameters sharded_parameters(const std::vector<const FullyShardedDataParallelBase*>& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names) {
  std::map<const void*, const FullyShardedDataParallelBase*> owners;
  for (const auto* model : models) {
    for (const auto& entry : model->parameters()) owners.emplace(entry.tensor.unsafeGetTensorImpl(), model);
  }
  ShardedParameters result;
  for (const auto& entry : optimizer_parameters(optimizer, names)) {
    const auto owner = owners.find(entry.tensor.unsafeGetTensorImpl());
    if (owner != owners.end()) result.emplace(entry.name, ShardedParameter{owner->second, entry.tensor});
  }
  return result;
}

/// The parameter that this tensor of the state has one value per element of; null for a step count.
const ShardedParameter* parameter_of(const ShardedParameters& parameters, const std::string& name,
                                     const at::Tensor& tensor) {
  const auto found = parameters.find(parameter_in(name));
  return found == parameters.end() || tensor.scalar_type() == at::kLong ? nullptr : &found->second;
}

void load_sharded(const std::vector<const FullyShardedDataParallelBase*>& models,
                  torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                  const TensorSource& tensors, const std::string& options, const ProcessGroup& group,
                  const std::string& where) {
  const auto parameters = sharded_parameters(models, optimizer, names);
  std::string complaint;
  const auto own_part = [&](const std::string& name, const at::Tensor& whole) {
    const auto* const parameter = parameter_of(parameters, name, whole);
    if (parameter == nullptr) return whole;
    try {
      return parameter->model->take_part(parameter->tensor, whole);
    } catch (const DataError& error) {
      complaint = error.what();
      return at::Tensor();
    }
  };
  const OptimizerState mine{.tensors = train::broadcast_tensors(group, tensors, 0, own_part),
                            .options = group.broadcast_object(options)};
  if (!complaint.empty()) throw DataError(where + " does not fit the model: " + complaint);
  load_optimizer_state(optimizer, names, mine, where);
}

}  // namespace

OptimizerState consolidate_optimizer_state(const std::vector<const FullyShardedDataParallelBase*>& models,
                                           const torch::optim::Optimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep) {
  const auto parameters = sharded_parameters(models, optimizer, names);
  const OptimizerState own = optimizer_state(optimizer, names);
  OptimizerState whole{.tensors = {}, .options = own.options};
  for (const auto& [name, tensor] : own.tensors) {
    const auto* const parameter = parameter_of(parameters, name, tensor);
    at::Tensor value = parameter ? parameter->model->gather_full(parameter->tensor, tensor) : tensor;
    if (keep) whole.tensors.emplace(name, std::move(value));
  }
  return whole;
}

OptimizerState train::queue_optimizer_state(GatheredTensors& gathered, const ShardedModels& models,
                                            const torch::optim::Optimizer& optimizer,
                                            const std::vector<NamedTensor>& names) {
  const auto parameters = sharded_parameters({models.begin(), models.end()}, optimizer, names);
  OptimizerState state = optimizer_state(optimizer, names);
  const TensorMap own = state.tensors;
  for (auto& [name, form] : state.tensors) {
    const auto* const parameter = parameter_of(parameters, name, form);
    const auto sizes = parameter ? parameter->model->full_sizes(parameter->tensor) : std::nullopt;
    if (sizes) form = at::empty(*sizes, form.options().device(at::kMeta));
  }
  for (const auto& name : names_in_file_order(state.tensors)) {
    const at::Tensor& tensor = own.at(name);
    const auto* const parameter = parameter_of(parameters, name, tensor);
    if (parameter == nullptr) {
      gathered.add(name, [tensor] { return tensor; });
    } else {
      gathered.add(name,
                   [tensor, owner = *parameter] { return owner.model->gather_full(owner.tensor, tensor); });
    }
  }
  return state;
}

OptimizerState consolidate_optimizer_state(const FullyShardedDataParallelBase& model,
                                           const torch::optim::Optimizer& optimizer, bool keep) {
  return consolidate_optimizer_state({&model}, optimizer, model.parameters(), keep);
}

void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where) {
  load_sharded(models, optimizer, names, source_of(state.tensors), state.options, group, where);
}

void train::load_consolidated(const ShardedModels& models, torch::optim::Optimizer& optimizer,
                              const std::vector<NamedTensor>& names, const TensorSource& tensors,
                              const std::string& options, const ProcessGroup& group,
                              const std::string& where) {
  load_sharded({models.begin(), models.end()}, optimizer, names, tensors, options, group, where);
}

void load_consolidated(const FullyShardedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                       const OptimizerState& state, const std::string& where) {
  load_consolidated({&model}, optimizer, model.parameters(), state, model.process_group(), where);
}

}  // namespace lockstep
