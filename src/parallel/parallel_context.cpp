#include "lockstep/parallel/parallel_context.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "lockstep/core/environment.hpp"
#include "parallel/parallel_grid.hpp"

namespace lockstep {

/// A group that contains this rank.
struct Membership {
  ProcessGroup group;
  std::vector<int> ranks;
};

namespace {

constexpr std::array kModes = {ParallelMode::global, ParallelMode::data, ParallelMode::replica,
                               ParallelMode::shard, ParallelMode::model};

/// The axes of the grid along which the ranks of a mode's group differ.
std::array<bool, 3> axes_of(ParallelMode mode) {
  switch (mode) {
    case ParallelMode::global:
      return {true, true, true};
    case ParallelMode::data:
      return {true, true, false};
    case ParallelMode::replica:
      return {true, false, false};
    case ParallelMode::shard:
      return {false, true, false};
    case ParallelMode::model:
      break;
  }
  return {false, false, true};
}

/// Groups of one rank and of all ranks need no communication.
ProcessGroup group_of(const ProcessGroup& world, const std::vector<int>& ranks) {
  if (static_cast<int>(ranks.size()) == world.size()) return world;
  return ProcessGroup::init(World::single(), {.device = world.device(), .timeout = world.timeout()});
}

/// Every rank creates all groups of a mode, in the same order, and keeps its own.
Membership join(const ProcessGroup& world, const std::vector<std::vector<int>>& groups) {
  std::optional<Membership> own;
  for (const auto& ranks : groups) {
    const bool here = std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
    const bool meets = ranks.size() > 1 && groups.size() > 1;
    auto group = meets ? world.new_group(ranks) : std::nullopt;
    if (here) own = Membership{group ? *group : group_of(world, ranks), ranks};
  }
  return std::move(*own);
}

}  // namespace

struct ParallelContext::Impl {
  parallel::Grid grid;
  std::vector<Membership> memberships;

  const Membership& of(ParallelMode mode) const { return memberships.at(static_cast<std::size_t>(mode)); }
};

ParallelContext ParallelContext::from_environment(const ParallelContextOptions& options,
                                                  const ProcessGroupOptions& group_options) {
  return ParallelContext(ProcessGroup::init(World::from_environment(), group_options), options);
}

ParallelContext::ParallelContext(const ProcessGroup& world, const ParallelContextOptions& options) {
  auto impl = std::make_shared<Impl>(
      Impl{parallel::Grid::of(world.size(), options.data_parallel_size, options.shard_size), {}});
  for (const auto mode : kModes) impl->memberships.push_back(join(world, impl->grid.groups(axes_of(mode))));
  impl_ = std::move(impl);
}

const ProcessGroup& ParallelContext::get_group(ParallelMode mode) const { return impl_->of(mode).group; }
int ParallelContext::get_local_rank(ParallelMode mode) const { return get_group(mode).rank(); }
int ParallelContext::get_world_size(ParallelMode mode) const { return get_group(mode).size(); }
const std::vector<int>& ParallelContext::get_ranks_in_group(ParallelMode mode) const {
  return impl_->of(mode).ranks;
}

std::vector<int> ParallelContext::shape() const {
  return {impl_->grid.shape.begin(), impl_->grid.shape.end()};
}

std::vector<int> ParallelContext::get_coordinate() const {
  const auto place = impl_->grid.coordinate(get_global_rank());
  return {place.begin(), place.end()};
}

}  // namespace lockstep
