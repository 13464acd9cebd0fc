// The emulator itself: it must find what a GPU may hide.

#include "support/block_emulator.hpp"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::testing {
namespace {

constexpr unsigned kThreads = 96;

/// Reverses through shared memory.
void reverse(const int* from, int* to, bool has_barrier) {
  __shared__ int room[kThreads];
  room[threadIdx.x] = from[threadIdx.x];
  if (has_barrier) __syncthreads();
  to[threadIdx.x] = room[kThreads - 1 - threadIdx.x];
}

std::vector<int> reversed(unsigned seed, bool has_barrier, int first) {
  std::vector<int> from(kThreads), to(kThreads);
  std::iota(from.begin(), from.end(), first);
  BlockEmulator(seed).run({1}, kThreads, [&] { reverse(from.data(), to.data(), has_barrier); });
  return to;
}

TEST(BlockEmulatorOf, ABarrierOrdersAndItsLackShows) {
  std::set<std::vector<int>> with, without;
  for (unsigned seed = 0; seed < 8; ++seed) {
    reversed(seed, true, 1000);
    with.insert(reversed(seed, true, 0));
    reversed(seed, true, 1000);
    without.insert(reversed(seed, false, 0));
  }
  EXPECT_EQ(with.size(), 1U);
  EXPECT_EQ((*with.begin())[0], static_cast<int>(kThreads) - 1);
  EXPECT_GT(without.size(), 1U);
}

TEST(BlockEmulatorOf, LanesExchangeWithinTheirWarp) {
  std::vector<unsigned> got(kThreads);
  BlockEmulator(1).run({1}, kThreads, [&] { got[threadIdx.x] = __shfl_xor_sync(~0U, threadIdx.x, 5); });
  for (unsigned i = 0; i < kThreads; ++i) EXPECT_EQ(got[i], i ^ 5U);
}

TEST(BlockEmulatorOf, EveryBlockRunsAndErrorsLeaveIt) {
  std::vector<int> runs(6);
  BlockEmulator(1).run({3, 2}, 1, [&] { ++runs[blockIdx.y * gridDim.x + blockIdx.x]; });
  EXPECT_EQ(runs, std::vector<int>(6, 1));
  EXPECT_THROW(BlockEmulator(1).run({1}, 64, [] { require(threadIdx.x != 40, "not 40"); }),
               std::invalid_argument);
  EXPECT_THROW(BlockEmulator(1).run({1}, 64,
                                    [] {
                                      if (threadIdx.x != 40) __syncthreads();
                                    }),
               std::logic_error);
}

}  // namespace
}  // namespace lockstep::testing
