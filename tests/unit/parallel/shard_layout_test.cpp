#include "parallel/fsdp/shard_layout.hpp"

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

TEST(ShardLayout, RanksHaveEqualPartsWhateverTheTensorsAre) {
  const ShardLayout layout({10, 0, 33}, 4, 3);
  EXPECT_EQ(layout.shard_size(), 16);
  EXPECT_EQ(layout.size(), 48);
  EXPECT_EQ(layout.tensor(2).begin, 12);
  EXPECT_EQ(layout.in_shard(0, 0).size, 10);
  EXPECT_EQ(layout.in_shard(0, 1).size, 0);
  EXPECT_EQ(layout.in_shard(2, 0).begin, 12);
  EXPECT_EQ(layout.in_shard(2, 2).size, 13);
}

TEST(ShardLayout, EachElementLiesOnOneRankOrInAGap) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t alignment : {1, 16}) {
      const std::vector<std::int64_t> sizes{1, 17, 64, 0, 5, 301};
      const ShardLayout layout(sizes, alignment, ranks);
      std::vector<int> seen(static_cast<std::size_t>(layout.size()));
      for (const auto& gap : layout.gaps()) {
        for (std::int64_t i = 0; i < gap.size; ++i) ++seen[static_cast<std::size_t>(gap.begin + i)];
      }
      for (std::size_t number = 0; number < sizes.size(); ++number) {
        EXPECT_EQ(layout.tensor(number).begin % alignment, 0);
        std::int64_t next = layout.tensor(number).begin;
        for (int rank = 0; rank < ranks; ++rank) {
          const Range mine = layout.in_shard(number, rank);
          ASSERT_LE(mine.begin + mine.size, layout.shard_size());
          if (mine.size == 0) continue;
          EXPECT_EQ(layout.in_tensor(number, rank).begin, next - layout.tensor(number).begin);
          EXPECT_EQ(rank * layout.shard_size() + mine.begin, next) << "parts follow each other";
          next += mine.size;
        }
        EXPECT_EQ(next, layout.tensor(number).begin + sizes[number]);
        for (auto i = layout.tensor(number).begin; i < next; ++i) ++seen[static_cast<std::size_t>(i)];
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
