#include "lockstep/train/consolidated_optimizer.hpp"

#include <map>

#include "broadcast_tensors.hpp"
#include "lockstep/core/error.hpp"

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
    whole.tensors.merge(
        train::broadcast_tensors(group, own.tensors, rank, [&](const auto&) { return keep; }));
  return whole;
}

void load_consolidated(optim::ZeroRedundancyOptimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where) {
  const auto owners = owners_by_name(optimizer, names);
  const int self = optimizer.process_group().rank();
  const auto is_own = [&](const std::string& name) {
    const auto found = owners.find(parameter_in(name));
    return found == owners.end() || found->second == self;  // What nobody owns is refused below.
  };
  const OptimizerState share{.tensors = train::broadcast_tensors(group, state.tensors, 0, is_own),
                             .options = group.broadcast_object(state.options)};
  load_optimizer_state(optimizer.local_optimizer(), names, share, where);
  optimizer.take_over();
}

namespace {

/// The state with what `change(parameter, tensor)` makes of each tensor that has a value for each element of
/// a parameter; a number of steps stays.
template <class Change>
OptimizerState changed(const OptimizerState& state, const FullyShardedDataParallelBase& model,
                       const Change& change) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& entry : model.parameters()) parameters.emplace(entry.name, entry.tensor);
  OptimizerState result{.tensors = {}, .options = state.options};
  for (const auto& [name, tensor] : state.tensors) {
    const auto parameter = parameters.find(parameter_in(name));
    const bool has_elements = parameter != parameters.end() && tensor.dim() > 0;
    at::Tensor value = has_elements ? change(parameter->second, tensor) : tensor;
    if (value.defined()) result.tensors.emplace(name, std::move(value));
  }
  return result;
}

}  // namespace

OptimizerState consolidate_optimizer_state(const FullyShardedDataParallelBase& model,
                                           const torch::optim::Optimizer& optimizer, bool keep) {
  return changed(optimizer_state(optimizer, model.parameters()), model,
                 [&](const at::Tensor& parameter, const at::Tensor& part) {
                   const at::Tensor whole = model.gather_full(parameter, part);
                   return keep ? whole : at::Tensor();
                 });
}

void load_consolidated(const FullyShardedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                       const OptimizerState& state, const std::string& where) {
  OptimizerState mine;
  try {
    mine = changed(state, model, [&](const at::Tensor& parameter, const at::Tensor& whole) {
      return model.take_part(parameter, whole);
    });
  } catch (const DataError& error) {
    throw DataError(where + " does not fit the model: " + error.what());
  }
  load_optimizer_state(optimizer, model.parameters(), mine, where);
}

}  // namespace lockstep
