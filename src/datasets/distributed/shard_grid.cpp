#include <algorithm>

#include "cached_run.hpp"

namespace lockstep {
namespace {

// Few enough that a file each costs nothing, many enough that workers are busy to the end and a kill loses
// little.
constexpr std::int64_t kUsualShards = 64;
constexpr std::int64_t kFewestRows = 1'000;
constexpr std::int64_t kMostRows = 100'000;

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

std::vector<ShardTask> shard_grid(std::int64_t rows, std::int64_t batch_rows, std::int64_t shard_rows) {
  const std::int64_t usual = std::clamp(divided_up(rows, kUsualShards), kFewestRows, kMostRows);
  const std::int64_t step = divided_up(shard_rows > 0 ? shard_rows : usual, batch_rows) * batch_rows;
  std::vector<ShardTask> tasks;
  for (std::int64_t first = 0; first < rows; first += step)
    tasks.push_back({.number = tasks.size(), .first_row = first, .rows = std::min(step, rows - first)});
  return tasks;
}

}  // namespace lockstep
