#include "shm/collectives.hpp"

#include <gtest/gtest.h>

#include <random>

#include "shm/groups.hpp"
#include "shm/values.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;

/// Small staging areas, so that messages of a few pages take several steps.
void small_staging(GroupOptions& options) { options.staging_bytes = 8192; }

constexpr std::size_t kSizes[] = {0, 1, 2, 63, 1000, 4097, 20011};

class EveryWorld : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3, 4, 5));

std::vector<Values> inputs_for_all(Dtype dtype, Reduction reduction, std::size_t count, int rank, int ranks) {
  std::vector<Values> list;
  for (int r = 0; r < ranks; ++r)
    list.push_back(input_of(dtype, reduction, count, rank, static_cast<std::size_t>(r)));
  return list;
}

std::vector<void*> pointers(std::vector<Values>& list) {
  std::vector<void*> result;
  for (auto& values : list) result.push_back(values.data());
  return result;
}

ConstBuffers constant(const std::vector<void*>& buffers) { return {buffers.data(), buffers.size()}; }

TEST_P(EveryWorld, ReducesEverything) {
  run_group(
      size(),
      [&](Group& group) {
        const int rank = group.step_sync().rank();
        const int root = size() - 1;
        for_every_reduction([&](Dtype dtype, Reduction reduction) {
          for (const std::size_t count : kSizes) {
            Values all = input_of(dtype, reduction, count, rank);
            all_reduce(group.step_sync(), *group.heap(), all.data(), {count, dtype}, reduction);
            EXPECT_TRUE(all == result_of(dtype, reduction, count, size()))
                << "all_reduce " << name_of(dtype) << ' ' << name_of(reduction) << ' ' << count;
            Values one = input_of(dtype, reduction, count, rank);
            reduce(group.step_sync(), one.data(), {count, dtype}, reduction, root);
            EXPECT_TRUE(one == (rank == root ? result_of(dtype, reduction, count, size())
                                             : input_of(dtype, reduction, count, rank)))
                << "reduce " << name_of(dtype) << ' ' << name_of(reduction) << ' ' << count;
          }
        });
      },
      small_staging);
}

TEST_P(EveryWorld, ReducesAndScatters) {
  run_group(
      size(),
      [&](Group& group) {
        const int rank = group.step_sync().rank();
        for_every_reduction([&](Dtype dtype, Reduction reduction) {
          for (const std::size_t count : {0, 1, 1000, 4097}) {
            auto inputs = inputs_for_all(dtype, reduction, count, rank, size());
            auto buffers = pointers(inputs);
            Values& own = inputs[static_cast<std::size_t>(rank)];
            reduce_scatter(group.step_sync(), constant(buffers), own.data(), {count, dtype}, reduction);
            EXPECT_TRUE(own == result_of(dtype, reduction, count, size(), static_cast<std::size_t>(rank)))
                << name_of(dtype) << ' ' << name_of(reduction) << ' ' << count;
          }
        });
      },
      small_staging);
}

TEST_P(EveryWorld, Broadcasts) {
  run_group(
      size(),
      [&](Group& group) {
        for (const std::size_t count : kSizes) {
          for (int root = 0; root < size(); ++root) {
            Values values = input_of(Dtype::i16, Reduction::sum, count, group.step_sync().rank());
            broadcast(group.step_sync(), values.data(), {count, Dtype::i16}, root);
            EXPECT_TRUE(values == input_of(Dtype::i16, Reduction::sum, count, root)) << count;
          }
        }
      },
      small_staging);
}

TEST_P(EveryWorld, GathersAndScatters) {
  run_group(
      size(),
      [&](Group& group) {
        const int rank = group.step_sync().rank();
        for (const std::size_t count : kSizes) {
          const auto mine = [&](int r) { return input_of(Dtype::f64, Reduction::sum, count, r); };
          std::vector<Values> all(static_cast<std::size_t>(size()), Values(Dtype::f64, count));
          auto buffers = pointers(all);
          Values input = mine(rank);
          all_gather(group.step_sync(), input.data(), buffers, {count, Dtype::f64});
          for (int r = 0; r < size(); ++r) EXPECT_TRUE(all[static_cast<std::size_t>(r)] == mine(r));
          for (int root = 0; root < size(); ++root) {
            std::vector<Values> gathered(static_cast<std::size_t>(size()), Values(Dtype::f64, count));
            auto places = pointers(gathered);
            gather(group.step_sync(), input.data(), places, {count, Dtype::f64}, root);
            for (int r = 0; r < size(); ++r) {
              EXPECT_TRUE(gathered[static_cast<std::size_t>(r)] ==
                          (rank == root ? mine(r) : Values(Dtype::f64, count)));
            }
            Values part(Dtype::f64, count);
            scatter(group.step_sync(), constant(rank == root ? buffers : std::vector<void*>()), part.data(),
                    {count, Dtype::f64}, root);
            EXPECT_TRUE(part == mine(rank));
          }
        }
      },
      small_staging);
}

/// Rank a sends (a + 2 b) % 5 * 700 elements to rank b.
TEST_P(EveryWorld, ExchangesUnequalParts) {
  run_group(
      size(),
      [&](Group& group) {
        const int rank = group.step_sync().rank();
        const auto values = [](int from, int to) {
          const auto count = static_cast<std::size_t>((from + 2 * to) % 5 * 700);
          return input_of(Dtype::i32, Reduction::sum, count, from, static_cast<std::size_t>(to));
        };
        std::vector<Values> sent, received;
        std::vector<Part> inputs, outputs;
        for (int r = 0; r < size(); ++r) sent.push_back(values(rank, r));
        for (int r = 0; r < size(); ++r) received.emplace_back(Dtype::i32, values(r, rank).count());
        for (auto& part : sent) inputs.push_back({part.data(), part.count()});
        for (auto& part : received) outputs.push_back({part.data(), part.count()});
        all_to_all(group.step_sync(), inputs, outputs, Dtype::i32);
        for (int r = 0; r < size(); ++r)
          EXPECT_TRUE(received[static_cast<std::size_t>(r)] == values(r, rank));
      },
      small_staging);
}

/// In the heap of all ranks, of none, and of some: the same bits.
TEST_P(EveryWorld, ReducesInPlaceWhereBuffersAreShared) {
  run_group(size(), [&](Group& group) {
    const int rank = group.step_sync().rank();
    for (int shared = 0; shared <= size(); ++shared) {
      for (const std::size_t count : {20'000, 300'001}) {
        Values own = input_of(Dtype::f32, Reduction::sum, count, rank);
        void* data = own.data();
        if (rank < shared) {
          data = group.heap()->allocate(count * sizeof(float));
          std::memcpy(data, own.data(), count * sizeof(float));
        }
        all_reduce(group.step_sync(), *group.heap(), data, {count, Dtype::f32}, Reduction::sum);
        Values right = result_of(Dtype::f32, Reduction::sum, count, size());
        EXPECT_EQ(std::memcmp(data, right.data(), count * sizeof(float)), 0) << shared << ' ' << count;
        if (rank < shared) group.heap()->free(data);
      }
    }
  });
}

/// Numbers whose sum depends on the order: every rank gets the bits of the sum in the order of ranks, by each
/// of the ways that an all_reduce may go.
TEST_P(EveryWorld, GivesTheSameBitsByEveryWay) {
  const auto value = [](std::size_t i, int rank) {
    return std::ldexp(static_cast<float>((i * 2654435761U + static_cast<unsigned>(rank) * 40503U) % 1000003),
                      -rank * 5);
  };
  run_group(size(), [&](Group& group) {
    for (const std::size_t count : {100, 5000, 500'000}) {
      std::vector<float> values(count), right(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = right[i] = value(i, group.step_sync().rank());
        right[i] = value(i, 0);
        for (int r = 1; r < size(); ++r) right[i] += value(i, r);
      }
      all_reduce(group.step_sync(), *group.heap(), values.data(), {count, Dtype::f32}, Reduction::sum);
      EXPECT_EQ(std::memcmp(values.data(), right.data(), count * sizeof(float)), 0) << count;
    }
  });
}

TEST(Collectives, LargeMessages) {
  constexpr std::size_t kCount = 16U << 20;
  run_group(2, [&](Group& group) {
    std::vector<float> values(kCount, static_cast<float>(group.step_sync().rank() + 1));
    all_reduce(group.step_sync(), *group.heap(), values.data(), {kCount, Dtype::f32}, Reduction::sum);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return v == 3.0F; }));
    values.assign(kCount, static_cast<float>(group.step_sync().rank()));
    broadcast(group.step_sync(), values.data(), {kCount, Dtype::f32}, 1);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return v == 1.0F; }));
  });
}

TEST(Collectives, AHundredThousandSmallOnes) {
  run_group(2, [&](Group& group) {
    double value[8];
    for (int i = 0; i < 100'000; ++i) {
      for (int k = 0; k < 8; ++k) value[k] = group.step_sync().rank() + i + k;
      all_reduce(group.step_sync(), *group.heap(), value, {8, Dtype::f64}, Reduction::sum);
      for (int k = 0; k < 8; ++k) ASSERT_EQ(value[k], 2.0 * (i + k) + 1);
    }
  });
}

/// The same random operations of all kinds and sizes on every rank, with random delays.
TEST(Collectives, InRandomOrder) {
  run_group(
      4,
      [&](Group& group) {
        const int rank = group.step_sync().rank();
        std::mt19937 shared(7), own(static_cast<unsigned>(rank));
        for (int i = 0; i < 400; ++i) {
          const std::size_t count = shared() % 3 == 0 ? shared() % 9000 : shared() % 40;
          const int root = static_cast<int>(shared() % 4);
          Values values = input_of(Dtype::i64, Reduction::sum, count, rank);
          if (own() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(own() % 3));
          switch (shared() % 3) {
            case 0:
              all_reduce(group.step_sync(), *group.heap(), values.data(), {count, Dtype::i64},
                         Reduction::sum);
              ASSERT_TRUE(values == result_of(Dtype::i64, Reduction::sum, count, 4));
              break;
            case 1:
              broadcast(group.step_sync(), values.data(), {count, Dtype::i64}, root);
              ASSERT_TRUE(values == input_of(Dtype::i64, Reduction::sum, count, root));
              break;
            default:
              barrier(group.step_sync());
          }
        }
      },
      small_staging);
}

TEST(Collectives, InSeveralGroupsAtOnce) {
  MemoryBootstrapStore boards[3];
  run_threads(6, [&](int thread) {
    const int rank = thread / 3;
    const auto joined = Group::join(options_for(rank, 2), boards[thread % 3]);
    for (int i = 0; i < 2000; ++i) {
      std::int32_t value = rank + i * (thread % 3);
      all_reduce(joined.group->step_sync(), *joined.group->heap(), &value, {1, Dtype::i32}, Reduction::sum);
      ASSERT_EQ(value, 1 + 2 * i * (thread % 3));
    }
  });
}

}  // namespace
}  // namespace lockstep::shm
