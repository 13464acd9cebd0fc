#include "lockstep/optim/step_in_backward.hpp"

#include <map>
#include <unordered_map>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using GroupNumbers = std::unordered_map<const void*, std::size_t>;

GroupNumbers groups_of(const FusedOptimizer& optimizer) {
  GroupNumbers numbers;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const auto& parameter : optimizer.param_groups()[group].params())
      numbers.emplace(parameter.unsafeGetTensorImpl(), group);
  }
  return numbers;
}

void check_complete(const GroupNumbers& numbers, const std::vector<NamedTensor>& parameters) {
  for (const auto& entry : parameters) {
    if (numbers.contains(entry.tensor.unsafeGetTensorImpl())) continue;
    throw UsageError("step_in_backward: the optimizer has no parameter '" + entry.name +
                     "', whose gradient would be lost");
  }
}

void step(FusedOptimizer& optimizer, const GroupNumbers& numbers, const Tensors& parameters,
          const Tensors& gradients) {
  std::map<std::size_t, std::pair<Tensors, Tensors>> by_group;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto& [group_parameters, group_gradients] = by_group[numbers.at(parameters[i].unsafeGetTensorImpl())];
    group_parameters.push_back(parameters[i]);
    group_gradients.push_back(gradients[i]);
  }
  for (const auto& [group, lists] : by_group)
    optimizer.step_with(optimizer.param_groups()[group], lists.first, lists.second);
}

}  // namespace

void step_in_backward(DistributedDataParallelBase& ddp, FusedOptimizer& optimizer) {
  const GroupNumbers numbers = groups_of(optimizer);
  check_complete(numbers, ddp.parameters());
  ddp.apply_in_backward([&optimizer, numbers](const Tensors& parameters, const Tensors& gradients) {
    step(optimizer, numbers, parameters, gradients);
  });
}

}  // namespace lockstep::optim
