#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "optim/greedy_partition.hpp"
#include "parallel/bucket_plan.hpp"
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

/// A line of the goldens: the number of ranks, then for each group '|' and pairs elements:owner.
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

using parallel::CommunicationCost;
using parallel::plan_buckets;
using Arrivals = std::vector<parallel::GradientArrival>;
using Plan = std::vector<std::size_t>;

constexpr std::size_t kNoLimit = std::size_t{1} << 40;

/// When the last bucket of a plan is through, on the clock of the arrivals.
double finish_of(const Plan& plan, const Arrivals& arrivals, CommunicationCost cost) {
  double through = 0;
  auto next = arrivals.begin();
  for (const auto count : plan) {
    std::size_t bytes = 0;
    double ready = 0;
    for (const auto end = next + static_cast<std::ptrdiff_t>(count); next < end; ++next) {
      bytes += next->bytes;
      ready = std::max(ready, next->seconds);
    }
    through =
        std::max(through, ready) + cost.seconds_per_call + static_cast<double>(bytes) * cost.seconds_per_byte;
  }
  return through;
}

/// All ways to cut so many gradients.
std::vector<Plan> all_plans(std::size_t gradients) {
  std::vector<Plan> plans;
  for (unsigned cuts = 0; cuts < 1U << (gradients - 1); ++cuts) {
    Plan plan{1};
    for (std::size_t i = 0; i + 1 < gradients; ++i) {
      if (cuts >> i & 1U) plan.push_back(0);
      ++plan.back();
    }
    plans.push_back(plan);
  }
  return plans;
}

bool is_within(const Plan& plan, const Arrivals& arrivals, std::size_t most_bytes) {
  auto next = arrivals.begin();
  for (const auto count : plan) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    std::size_t bytes = 0;
    for (; next != end; ++next) bytes += next->bytes;
    if (count > 1 && bytes > most_bytes) return false;
  }
  return true;
}

TEST(BucketPlan, IsThroughAsEarlyAsCanBeWithTheFewestBuckets) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Arrivals arrivals;
    double time = 0;
    std::size_t bytes = 0;
    const std::size_t gradients = 1 + random() % 9;
    for (std::size_t i = 0; i < gradients; ++i) {
      arrivals.push_back({time, 1 + random() % 1000});
      time += static_cast<double>(random() % 100);
      bytes += arrivals.back().bytes;
    }
    const CommunicationCost cost{static_cast<double>(random() % 50),
                                 static_cast<double>(random() % 100) / 200};
    const std::size_t limit = round % 2 == 0 ? kNoLimit : 1000;
    const Plan found = plan_buckets(arrivals, cost, limit);
    EXPECT_TRUE(is_within(found, arrivals, limit));
    const double tolerance =
        0.05 * (cost.seconds_per_call + cost.seconds_per_byte * static_cast<double>(bytes));
    double best = finish_of(found, arrivals, cost);
    std::size_t fewest = found.size();
    const auto consider = [&](const auto& visit) {
      for (const Plan& other : all_plans(arrivals.size())) {
        if (is_within(other, arrivals, limit)) visit(other, finish_of(other, arrivals, cost));
      }
    };
    consider([&](const Plan&, double finish) { best = std::min(best, finish); });
    consider([&](const Plan& other, double finish) {
      if (finish < best + tolerance) fewest = std::min(fewest, other.size());
    });
    EXPECT_LE(finish_of(found, arrivals, cost), best + tolerance + 1e-9);
    EXPECT_EQ(found.size(), fewest);
  }
}

TEST(BucketPlan, WithoutCostOneBucketIsEnough) {
  EXPECT_EQ(plan_buckets({{0, 10}, {1, 10}, {2, 10}}, {}, kNoLimit), (Plan{3}));
}

TEST(BucketPlan, ALastGradientThatComesLateTravelsAlone) {
  EXPECT_EQ(plan_buckets({{0, 100}, {1, 100}, {1000, 10}}, {1, 1}, kNoLimit), (Plan{2, 1}));
}

TEST(BucketPlan, WhereCallsAreDearGradientsTravelTogether) {
  EXPECT_EQ(plan_buckets({{0, 100}, {1, 100}, {2, 100}}, {1000, 1}, kNoLimit), (Plan{3}));
}

TEST(BucketPlan, AGradientAboveTheLimitTravelsAlone) {
  EXPECT_EQ(plan_buckets({{0, 5}, {0, 500}, {0, 5}}, {1, 1}, 100), (Plan{1, 1, 1}));
}

TEST(BucketPlan, ThousandsOfGradientsAreAllThere) {
  Arrivals arrivals;
  for (int i = 0; i < 5000; ++i) arrivals.push_back({i * 1e-5, i % 7 == 0 ? 4'000'000U : 4096U});
  const CommunicationCost cost{30e-6, 1e-10};
  const Plan plan = plan_buckets(arrivals, cost, 25U << 20);
  std::size_t gradients = 0;
  for (const auto count : plan) gradients += count;
  EXPECT_EQ(gradients, arrivals.size());
  EXPECT_GT(plan.size(), 1U);
  EXPECT_LE(finish_of(plan, arrivals, cost), finish_of({arrivals.size()}, arrivals, cost));
}

}  // namespace
}  // namespace lockstep
