// Weights that are gathered ahead of the forward that needs them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/fully_shard.hpp"
#include "parallel/fsdp/forward_order.hpp"
#include "sharded_net.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(ForwardOrder, ForetellsFromAForwardThatAllRanksHad) {
  parallel::ForwardOrder order;
  const auto run = [&](const std::vector<std::size_t>& units) {
    std::vector<std::optional<std::size_t>> foretold;
    order.begin();
    for (const auto unit : units) foretold.push_back(order.next_after(unit));
    return foretold;
  };
  using Foretold = std::vector<std::optional<std::size_t>>;
  EXPECT_EQ(run({0, 1, 2}), (Foretold{{}, {}, {}}));
  order.compare();
  EXPECT_EQ(run({0, 1, 2}), (Foretold{{}, {}, {}})) << "the answer may not be there yet";
  order.compare();
  EXPECT_EQ(run({0, 1, 2}), (Foretold{1, 2, {}}));
  // Without a backward, such as an evaluation.
  EXPECT_EQ(run({0, 2, 1, 2}), (Foretold{1, {}, {}, {}}));
  EXPECT_EQ(run({0, 1}), (Foretold{1, 2}));
  EXPECT_EQ(run({0, 1, 2, 2}), (Foretold{1, 2, {}, {}}));
  order.compare();
  EXPECT_EQ(run({0, 1, 2}), (Foretold{1, 2, {}})) << "that of the backward before";
  order.compare();
  EXPECT_EQ(run({0, 1, 2, 2}), (Foretold{1, 2, 2, {}}));
  order.forget();
  EXPECT_EQ(run({0, 1}), (Foretold{{}, {}}));
}

TEST(ForwardOrder, HasAHashOfItsUnits) {
  const auto hash_of = [](const std::vector<std::size_t>& units) {
    parallel::ForwardOrder order;
    order.begin();
    for (const auto unit : units) order.next_after(unit);
    return order.hash();
  };
  EXPECT_EQ(hash_of({0, 1, 2}), hash_of({0, 1, 2}));
  EXPECT_NE(hash_of({0, 1, 2}), hash_of({0, 2, 1}));
  EXPECT_NE(hash_of({0, 1}), hash_of({0, 1, 0}));
}

/// How many gatherings have been started when each block begins to compute.
std::vector<std::size_t> gatherings_of_forward(Net& net, FullyShardedDataParallel<Net>& model,
                                               const ProcessGroup& group) {
  const testing::TemporaryFolder folder;
  std::vector<std::size_t> counts;
  const auto count = [&] {
    const auto trace = nlohmann::json::parse(testing::read_bytes(group.write_trace(folder.path())));
    return std::ranges::count_if(trace.at("entries"), [](const auto& entry) {
      return entry.at("profiling_name").template get<std::string>().find("all_gather") != std::string::npos;
    });
  };
  const auto before = count();
  for (const std::size_t number : {0, 1, 2})
    net->block(number).begins = [&] { counts.push_back(static_cast<std::size_t>(count() - before)); };
  const at::Tensor loss = net_loss(model, group.rank(), 0);
  for (const std::size_t number : {0, 1, 2}) net->block(number).begins = [] {};
  loss.backward();
  return counts;
}

/// Which is when its weights travel while the unit before it computes.
TEST(FullyShard, GathersTheNextUnitBeforeAUnitComputes) {
  run_group(2, [&](const ProcessGroup& group) {
    using Counts = std::vector<std::size_t>;
    for (const bool prefetches : {true, false}) {
      auto net = seeded([] { return Net(); });
      auto model = fully_shard(net, group, {.backward_prefetch = prefetches});
      // The root, then each block; the second one twice.
      const Counts one_by_one{2, 3, 4, 5}, ahead{3, 3, 5, 5};
      EXPECT_EQ(gatherings_of_forward(net, model, group), one_by_one);
      EXPECT_EQ(gatherings_of_forward(net, model, group), one_by_one)
          << "the ranks' answer may be on its way";
      EXPECT_EQ(gatherings_of_forward(net, model, group), prefetches ? ahead : one_by_one);
    }
  });
}

}  // namespace
}  // namespace lockstep
