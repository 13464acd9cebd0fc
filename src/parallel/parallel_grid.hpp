#pragma once

#include <array>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The ranks of a world as replicas x shards x parts of a model, row by row.
struct Grid {
  /// Throws UsageError if a size does not divide the size that it is a part of. A data_parallel_size of 0
  /// means all.
  static Grid of(int world_size, int data_parallel_size, int shard_size);

  std::array<int, 3> coordinate(int rank) const;

  /// The groups of ranks that differ only along the chosen axes, ordered by their first ranks.
  std::vector<std::vector<int>> groups(const std::array<bool, 3>& along) const;

  std::array<int, 3> shape;
};

}  // namespace lockstep::parallel
