#include "comm/cuda/nccl_communicators.hpp"

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::comm {
namespace {

constexpr const char* kSignal = "exception_dump";

/// c10d's way to the store of all of a job.
c10::intrusive_ptr<c10d::Store> of_all(const c10::intrusive_ptr<c10d::Store>& store) {
  return c10::make_intrusive<c10d::PrefixStore>("world", store)->getUnderlyingNonPrefixStore();
}

TEST(NcclStore, KnowsNothingOfASignalFromAnEarlierAttempt) {
  const Store store = Store::in_memory();
  store.set(kSignal, "0000");
  EXPECT_FALSE(of_all(rooted(store.with_prefix("lockstep/1")))->check({kSignal}));
}

TEST(NcclStore, SharesItsSignalAmongTheGroupsOfAJob) {
  const Store store = Store::in_memory().with_prefix("lockstep/0");
  const auto job = rooted(store);
  of_all(job)->set(kSignal, std::vector<std::uint8_t>(4));
  EXPECT_TRUE(of_all(rooted(store))->check({kSignal}));
  EXPECT_TRUE(store.contains(kSignal));
}

}  // namespace
}  // namespace lockstep::comm
