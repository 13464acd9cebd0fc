#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "parallel/parallel_grid.hpp"

namespace lockstep::parallel {
namespace {

void require_divides(const char* name, int part, const char* whole_name, int whole) {
  if (part >= 1 && whole % part == 0) return;
  throw UsageError(fmt::format("ParallelContext: {} must divide {}, but it is {} and that is {}", name,
                               whole_name, part, whole));
}

}  // namespace

Grid Grid::of(int world_size, int data_parallel_size, int shard_size) {
  const int data = data_parallel_size == 0 ? world_size : data_parallel_size;
  require_divides("data_parallel_size", data, "the number of ranks", world_size);
  require_divides("shard_size", shard_size, "data_parallel_size", data);
  return {{data / shard_size, shard_size, world_size / data}};
}

std::array<int, 3> Grid::coordinate(int rank) const {
  const auto [replicas, shards, parts] = shape;
  return {rank / (shards * parts), rank / parts % shards, rank % parts};
}

std::vector<std::vector<int>> Grid::groups(const std::array<bool, 3>& along) const {
  const int size = shape[0] * shape[1] * shape[2];
  std::vector<std::vector<int>> groups;
  std::vector<std::array<int, 3>> positions;
  for (int rank = 0; rank < size; ++rank) {
    auto position = coordinate(rank);
    for (std::size_t axis = 0; axis < 3; ++axis) position[axis] = along[axis] ? 0 : position[axis];
    const auto found = std::find(positions.begin(), positions.end(), position);
    const auto number = static_cast<std::size_t>(found - positions.begin());
    if (found == positions.end()) {
      positions.push_back(position);
      groups.emplace_back();
    }
    groups[number].push_back(rank);
  }
  return groups;
}

}  // namespace lockstep::parallel
