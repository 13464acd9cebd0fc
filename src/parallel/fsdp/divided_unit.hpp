#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "buffer_pool.hpp"
#include "lockstep/parallel/unit.hpp"
#include "sharded_segment.hpp"

namespace lockstep::parallel {

/// A unit that ShardedInit has sharded, until fully_shard() takes it over.
class DividedUnit final : public UnitHooks {
 public:
  /// *Collective*.
  DividedUnit(const std::vector<NamedTensor>& parameters, const ShardGroups& groups);

  void before_forward() override;
  void after_forward(const std::vector<at::Tensor>&) override {}
  void forward_failed() noexcept override {}

  /// Unshards the parameters. *Collective*.
  void make_whole();

  std::vector<std::int64_t> full_sizes(std::size_t segment, std::size_t number) const {
    return segments_[segment].full_sizes(number).vec();
  }
  at::Tensor take_part(std::size_t segment, std::size_t number, const at::Tensor& whole) const {
    return segments_[segment].take_part(number, whole);
  }
  /// Calls `visit(parameter, segment, number)` for all parameters.
  template <class Visit>
  void visit_places(const Visit& visit) const {
    for (std::size_t segment = 0; segment < segments_.size(); ++segment) {
      const auto& parameters = segments_[segment].parameters();
      for (std::size_t number = 0; number < parameters.size(); ++number)
        visit(parameters[number].tensor, segment, number);
    }
  }
  /// Copies rank 0's values to all ranks. *Collective*.
  void broadcast(const at::Tensor& values) const { all_.broadcast(values); }

 private:
  ProcessGroup all_;
  BufferPool pool_;
  std::vector<ShardedSegment> segments_;
};

/// The DividedUnit of a unit; null if the unit is not sharded, or is fully sharded.
DividedUnit* divided(const Unit& unit);

}  // namespace lockstep::parallel
