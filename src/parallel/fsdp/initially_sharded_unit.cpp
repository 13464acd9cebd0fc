#include "parallel/fsdp/initially_sharded_unit.hpp"

#include <ATen/ATen.h>

#include <map>
#include <tuple>

#include "lockstep/core/error.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep::parallel {

InitiallyShardedUnit::InitiallyShardedUnit(const std::vector<NamedTensor>& parameters,
                                           const ShardGroups& groups)
    : all_(groups.all) {
  std::map<std::tuple<at::ScalarType, bool>, std::vector<NamedTensor>> members;
  for (const auto& entry : parameters)
    members[{entry.tensor.scalar_type(), entry.tensor.requires_grad()}].push_back(entry);
  for (auto& [kind, of_kind] : members) {
    for (const auto& entry : of_kind) {
      if (entry.tensor.device() != groups.all.device())
        entry.tensor.set_data(entry.tensor.detach().to(groups.all.device()));
      copy_values(groups.all, entry.tensor);
      ShardedParameterRegistry::add(entry.tensor);
    }
    parameter_groups_.emplace_back(std::move(of_kind), groups, MixedPrecisionPolicy{}, pool_);
  }
}

void InitiallyShardedUnit::pre_forward() {
  throw UsageError(
      "a model that was made under a ShardedInit has no forward before fully_shard() or "
      "Accelerator::prepare()");
}

void InitiallyShardedUnit::unshard() {
  for (auto& group : parameter_groups_) {
    group.check_sharded_storage();
    group.unshard_in_original_dtype();
    for (const auto& entry : group.parameters()) ShardedParameterRegistry::remove(entry.tensor);
  }
}

InitiallyShardedUnit* find_initially_sharded(const Unit& unit) {
  return dynamic_cast<InitiallyShardedUnit*>(unit.hooks().get());
}

}  // namespace lockstep::parallel
