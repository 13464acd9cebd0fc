#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "optim/greedy_partition.hpp"
#include "parallel/parallel_grid.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using parallel::Grid;
using Groups = std::vector<std::vector<int>>;

TEST(Grid, AllRanksAreDataParallelUnlessToldOtherwise) {
  const Grid grid = Grid::of(4, 0, 1);
  EXPECT_EQ(grid.shape, (std::array{4, 1, 1}));
  EXPECT_EQ(grid.groups({true, true, false}), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(grid.groups({false, false, true}), (Groups{{0}, {1}, {2}, {3}}));
}

TEST(Grid, NeighboursHoldPartsOfOneModel) {
  const Grid grid = Grid::of(4, 2, 1);
  EXPECT_EQ(grid.groups({true, true, false}), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(grid.groups({false, false, true}), (Groups{{0, 1}, {2, 3}}));
}

TEST(Grid, ShardsAreNeighboursAndReplicasAcross) {
  const Grid grid = Grid::of(8, 8, 4);
  EXPECT_EQ(grid.shape, (std::array{2, 4, 1}));
  EXPECT_EQ(grid.groups({false, true, false}), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(grid.groups({true, false, false}), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(grid.coordinate(6), (std::array{1, 2, 0}));
}

TEST(Grid, AllThreeAxes) {
  const Grid grid = Grid::of(12, 6, 3);
  EXPECT_EQ(grid.shape, (std::array{2, 3, 2}));
  EXPECT_EQ(grid.coordinate(9), (std::array{1, 1, 1}));
  EXPECT_EQ(grid.groups({false, true, false}), (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(grid.groups({true, true, true}).size(), 1u);
}

TEST(Grid, SizesMustDivide) {
  EXPECT_THROWS(Grid::of(4, 3, 1), UsageError, "data_parallel_size", "3", "4");
  EXPECT_THROWS(Grid::of(4, 4, 3), UsageError, "shard_size", "3", "4");
  EXPECT_THROWS(Grid::of(4, -1, 1), UsageError, "data_parallel_size");
  EXPECT_THROWS(Grid::of(4, 4, 0), UsageError, "shard_size");
}

/// A line of the goldens: the number of ranks, then per group '|' and pairs elements:owner.
struct GoldenPartition {
  explicit GoldenPartition(const std::string& line) {
    std::istringstream words(line);
    words >> ranks;
    for (std::string word; words >> word;) {
      if (word == "|") {
        elements.emplace_back();
        owners.emplace_back();
        continue;
      }
      const auto colon = word.find(':');
      elements.back().push_back(std::stoll(word.substr(0, colon)));
      owners.back().push_back(std::stoi(word.substr(colon + 1)));
    }
  }

  int ranks = 0;
  std::vector<std::vector<std::int64_t>> elements;
  std::vector<std::vector<int>> owners;
};

TEST(GreedyPartition, AsPythonsZeroRedundancyOptimizer) {
  std::ifstream file(LOCKSTEP_PARTITION_GOLDENS);
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const GoldenPartition golden(line);
    EXPECT_EQ(optim::greedy_partition(golden.elements, golden.ranks), golden.owners) << line;
  }
  EXPECT_EQ(cases, 20);
}

}  // namespace
}  // namespace lockstep
