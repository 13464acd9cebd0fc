#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/unit.hpp"
#include "parallel/fsdp/buffer_pool.hpp"
#include "parallel/fsdp/parameter_group.hpp"

namespace lockstep::parallel {

/// A unit that ShardedInit has sharded, until fully_shard() takes it over.
class InitiallyShardedUnit final : public UnitHooks {
 public:
  /// *Collective*.
  InitiallyShardedUnit(const std::vector<NamedTensor>& parameters, const ShardGroups& groups);

  void pre_forward() override;
  void post_forward(const std::vector<at::Tensor>&) override {}
  void forward_failed() noexcept override {}

  /// Unshards the parameters. *Collective*.
  void unshard();

  std::vector<std::int64_t> full_sizes(std::size_t group, std::size_t number) const {
    return parameter_groups_[group].full_sizes(number).vec();
  }
  at::Tensor take_part(std::size_t group, std::size_t number, const at::Tensor& whole) const {
    return parameter_groups_[group].take_part(number, whole);
  }
  /// Calls `visit(parameter, group, number)` for all parameters.
  template <class Visit>
  void visit_parameters(const Visit& visit) const {
    for (std::size_t group = 0; group < parameter_groups_.size(); ++group) {
      const auto& parameters = parameter_groups_[group].parameters();
      for (std::size_t number = 0; number < parameters.size(); ++number)
        visit(parameters[number].tensor, group, number);
    }
  }
  /// Copies rank 0's values to all ranks. *Collective*.
  void broadcast(const at::Tensor& values) const { all_.broadcast(values); }

 private:
  ProcessGroup all_;
  BufferPool pool_;
  std::vector<ParameterGroup> parameter_groups_;
};

/// The InitiallyShardedUnit of a unit; null if the unit is not sharded, or is fully sharded.
InitiallyShardedUnit* find_initially_sharded(const Unit& unit);

}  // namespace lockstep::parallel
