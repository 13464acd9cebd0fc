// Groups that span hosts, with ranks that are threads: several hosts are played on this one, and the
// transports between them are shared memory too.

#include <gtest/gtest.h>

#include <atomic>

#include "shm/played_hosts.hpp"
#include "shm/values.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::message_of;

class EveryShape : public ::testing::TestWithParam<Shape> {
 protected:
  int size() const { return GetParam().size(); }
  /// Small pieces, so that messages of a few pages take several of them.
  void run(const std::function<void(HierarchicalCollectives&, Group& local, int rank)>& body) {
    Job(GetParam(), 128U << 10).run(body);
  }
};
INSTANTIATE_TEST_SUITE_P(HostTopology, EveryShape,
                         ::testing::Values(Shape{"abb", 1}, Shape{"aab", 1}, Shape{"aabb", 1},
                                           Shape{"aabb", 2}, Shape{"abab", 2}, Shape{"abbaa", 2},
                                           Shape{"aaabc", 1}, Shape{"aabbcc", 2}),
                         [](const auto& shape) {
                           return shape.param.hosts + "_" + std::to_string(shape.param.leaders);
                         });

constexpr std::size_t kHierarchySizes[] = {0, 1, 63, 1000, 40'011};

TEST_P(EveryShape, AllReduces) {
  run([&](HierarchicalCollectives& hierarchy, Group& local, int rank) {
    for_every_reduction([&](Dtype dtype, Reduction reduction) {
      // The backend divides sums: a host knows nothing of the number of all ranks.
      if (reduction == Reduction::avg) return;
      for (const std::size_t count : kHierarchySizes) {
        const auto result = result_of(dtype, reduction, count, size());
        auto values = input_of(dtype, reduction, count, rank);
        const Elements elements{count, dtype};
        void* const shared = local.heap()->allocate(elements.bytes());
        std::memcpy(shared, values.data(), elements.bytes());
        HierarchicalTransport(hierarchy).all_reduce(values.data(), elements, reduction);
        EXPECT_EQ(values, result) << name_of(dtype) << ' ' << name_of(reduction) << ' ' << count;
        // In place where the ranks of a host see it.
        HierarchicalTransport(hierarchy).all_reduce(shared, elements, reduction);
        std::memcpy(values.data(), shared, elements.bytes());
        EXPECT_EQ(values, result) << name_of(dtype) << ' ' << name_of(reduction) << ' ' << count;
        local.heap()->free(shared);
      }
    });
  });
}

TEST_P(EveryShape, ReducesToEveryRoot) {
  run([&](HierarchicalCollectives& hierarchy, Group&, int rank) {
    for (const std::size_t count : kHierarchySizes) {
      for (int root = 0; root < size(); ++root) {
        auto values = input_of(Dtype::f32, Reduction::sum, count, rank);
        const auto before = values;
        HierarchicalTransport(hierarchy).reduce(values.data(), {count, Dtype::f32}, Reduction::sum, root);
        EXPECT_EQ(values, rank == root ? result_of(Dtype::f32, Reduction::sum, count, size()) : before);
      }
    }
  });
}

TEST_P(EveryShape, Broadcasts) {
  run([&](HierarchicalCollectives& hierarchy, Group&, int rank) {
    for (const std::size_t count : kHierarchySizes) {
      for (int root = 0; root < size(); ++root) {
        auto values = input_of(Dtype::i64, Reduction::sum, count, rank);
        HierarchicalTransport(hierarchy).broadcast(values.data(), {count, Dtype::i64}, root);
        EXPECT_EQ(values, input_of(Dtype::i64, Reduction::sum, count, root));
      }
    }
  });
}

TEST_P(EveryShape, GathersEverywhere) {
  run([&](HierarchicalCollectives& hierarchy, Group&, int rank) {
    for (const std::size_t count : kHierarchySizes) {
      auto own = input_of(Dtype::i16, Reduction::sum, count, rank);
      std::vector<Values> all(static_cast<std::size_t>(size()), Values(Dtype::i16, count));
      std::vector<void*> outputs;
      for (auto& values : all) outputs.push_back(values.data());
      HierarchicalTransport(hierarchy).all_gather(own.data(), outputs, {count, Dtype::i16});
      for (int r = 0; r < size(); ++r)
        EXPECT_EQ(all[static_cast<std::size_t>(r)], input_of(Dtype::i16, Reduction::sum, count, r)) << count;
    }
  });
}

TEST_P(EveryShape, ReducesAndScatters) {
  run([&](HierarchicalCollectives& hierarchy, Group&, int rank) {
    for (const std::size_t count : kHierarchySizes) {
      std::vector<Values> all;
      for (int r = 0; r < size(); ++r)
        all.push_back(input_of(Dtype::f64, Reduction::sum, count, rank, static_cast<std::size_t>(r)));
      std::vector<void*> inputs;
      for (auto& values : all) inputs.push_back(values.data());
      Values output(Dtype::f64, count);
      HierarchicalTransport(hierarchy).reduce_scatter(inputs, output.data(), {count, Dtype::f64},
                                                      Reduction::sum);
      EXPECT_EQ(output, result_of(Dtype::f64, Reduction::sum, count, size(), static_cast<std::size_t>(rank)));
    }
  });
}

TEST_P(EveryShape, MeetsAtBarriers) {
  std::atomic<int> arrived{0};
  run([&](HierarchicalCollectives& hierarchy, Group&, int) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      HierarchicalTransport(hierarchy).barrier();
      EXPECT_GE(arrived, round * size());
      HierarchicalTransport(hierarchy).barrier();
    }
  });
}

/// A rank that leaves is named on its own host and on the other.
TEST(HierarchicalCollectives, NamesWhoLeft) {
  Job({"aabb", 2}, 128U << 10).run([](HierarchicalCollectives& hierarchy, Group&, int rank) {
    HierarchicalTransport(hierarchy).barrier();
    if (rank == 3) return;
    const auto text = message_of<CommunicationError>([&] { HierarchicalTransport(hierarchy).barrier(); });
    EXPECT_TRUE(contains_all(text, {"rank 3 on "}));
  });
}

TEST(HierarchicalCollectives, ComparesTheCallsOfAHost) {
  Job({"aabb", 1}, 128U << 10).run([](HierarchicalCollectives& hierarchy, Group&, int rank) {
    std::vector<float> data(10);
    const Elements elements{rank == 1 ? 9U : 10U, Dtype::f32};
    const auto text = message_of<CommunicationError>(
        [&] { HierarchicalTransport(hierarchy).all_reduce(data.data(), elements, Reduction::sum); });
    EXPECT_TRUE(contains_all(text, {"rank 0 on ", "10 elements", "rank 1 on ", "9 elements"}));
  });
}

/// Whatever the leaders: those of the larger message are more. Ranks that carry nothing learn it from those
/// that do.
TEST(HierarchicalCollectives, ComparesTheCallsOfTheHosts) {
  for (const int leaders : {1, 2}) {
    Job({"aabb", leaders}, 128U << 10).run([](HierarchicalCollectives& hierarchy, Group&, int rank) {
      std::vector<float> data(40'000);
      const auto reduce = [&](std::size_t count) {
        HierarchicalTransport(hierarchy).all_reduce(data.data(), {count, Dtype::f32}, Reduction::sum);
      };
      reduce(10);
      reduce(40'000);
      const auto text = message_of<CommunicationError>([&] { reduce(rank < 2 ? 10 : 40'000); });
      EXPECT_TRUE(
          contains_all(text, {"ranks called different collectives", "10 elements", "40000 elements"}));
    });
  }
}

/// What something else carries is in one order with the rest.
TEST(HierarchicalCollectives, ComparesWhatItDoesNotCarry) {
  Job({"aabb", 1}, 128U << 10).run([](HierarchicalCollectives& hierarchy, Group&, int rank) {
    bool ran = false;
    const auto gather = [&] { hierarchy.elsewhere({.operation = Operation::gather}, [&] { ran = true; }); };
    gather();
    EXPECT_TRUE(std::exchange(ran, false));
    const auto text = message_of<CommunicationError>([&] {
      if (rank < 2) return HierarchicalTransport(hierarchy).barrier();
      gather();
    });
    EXPECT_FALSE(ran);
    EXPECT_TRUE(contains_all(text, {"barrier", "gather"}));
  });
}

TEST(HostTopology, AreRanksThatAllReachEachOther) {
  // Ranks 0 and 1 reach each other, 2 and 3 too; 4 was reached by 0 alone, and 1 by 2 alone.
  const std::vector<std::vector<bool>> reached{{true, true, false, false, true},
                                               {true, true, false, false, false},
                                               {false, true, true, true, false},
                                               {false, false, true, true, false},
                                               {false, false, false, false, true}};
  const HostTopology hosts = host_topology_of(reached, 3);
  EXPECT_EQ(hosts.ranks, (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(hosts.own, 1);
  EXPECT_EQ(hosts.least(), 1);
  EXPECT_EQ(hosts.host_rank_of(3).member, 1);
}

}  // namespace
}  // namespace lockstep::shm
