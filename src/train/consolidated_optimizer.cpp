#include "lockstep/train/consolidated_optimizer.hpp"

#include <map>

#include "checkpoint/safetensors_source.hpp"
#include "lockstep/core/error.hpp"
#include "train/broadcast_tensors.hpp"
#include "train/sharded_parameters.hpp"
#include "train/state/sharded_state.hpp"

namespace lockstep {
namespace {

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
    const auto found = owners.find(train::parameter_in(name));
    // load_optimizer_state() below rejects parameters without an owner.
    return found == owners.end() || found->second == self ? tensor : at::Tensor();
  };
  const OptimizerState share{.tensors = train::broadcast_tensors(group, state.tensors, 0, own),
                             .options = group.broadcast_object(state.options)};
  load_optimizer_state(optimizer.local_optimizer(), names, share, where);
  optimizer.take_over();
}

OptimizerState consolidate_optimizer_state(const std::vector<const FullyShardedDataParallelBase*>& models,
                                           const torch::optim::Optimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep) {
  const train::ShardedParameters parameters(models, optimizer, names);
  const OptimizerState own = optimizer_state(optimizer, names);
  OptimizerState whole{.tensors = {}, .options = own.options};
  for (const auto& [name, tensor] : own.tensors) {
    const auto* const parameter = parameters.find(name, tensor);
    at::Tensor value = parameter ? parameter->model->gather_full(parameter->tensor, tensor) : tensor;
    if (keep) whole.tensors.emplace(name, std::move(value));
  }
  return whole;
}

OptimizerState consolidate_optimizer_state(const FullyShardedDataParallelBase& model,
                                           const torch::optim::Optimizer& optimizer, bool keep) {
  return consolidate_optimizer_state({&model}, optimizer, model.parameters(), keep);
}

void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where) {
  train::load_consolidated(models, optimizer, names, source_of(state.tensors), state.options, group, where);
}

void load_consolidated(const FullyShardedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                       const OptimizerState& state, const std::string& where) {
  load_consolidated({&model}, optimizer, model.parameters(), state, model.process_group(), where);
}

}  // namespace lockstep
