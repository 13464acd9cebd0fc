#include "shm/p2p_queue.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "shm/groups.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::message_of;

int receive(Group& group, int source, int tag, void* to, Elements elements) {
  P2PQueue& queue = group.p2p_queue();
  return queue.wait(queue.receive({source, tag, to, elements}));
}

TEST(P2PQueue, FindsTagsInAnyOrderAndKeepsTheOrderOfEach) {
  run_group(2, [&](Group& group) {
    std::int32_t value = 0;
    if (group.step_sync().rank() == 0) {
      for (int i = 0; i < 10; ++i) {
        value = 100 * (i % 2) + i;
        group.p2p_queue().send(1, i % 2, &value, {1, Dtype::i32});
      }
      return;
    }
    for (int i : {1, 3, 0, 5, 2, 4, 6, 7, 9, 8}) {
      EXPECT_EQ(receive(group, 0, i % 2, &value, {1, Dtype::i32}), 0);
      EXPECT_EQ(value, 100 * (i % 2) + i);
    }
  });
}

TEST(P2PQueue, ReceivesFromWhoeverSends) {
  run_group(4, [&](Group& group) {
    const int rank = group.step_sync().rank();
    if (rank != 0) return group.p2p_queue().send(0, 5, &rank, {1, Dtype::i32});
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
      int value = 0;
      EXPECT_EQ(receive(group, P2PQueue::kAnySource, 5, &value, {1, Dtype::i32}), value);
      sum += value;
    }
    EXPECT_EQ(sum, 6);
  });
}

/// More messages than slots, and megabytes of them, both ways at once.
TEST(P2PQueue, HoldsBackASenderThatIsFarAhead) {
  run_group(2, [&](Group& group) {
    const int other = 1 - group.step_sync().rank();
    std::vector<std::int64_t> values(9000);
    std::thread sender([&] {
      for (int i = 0; i < 3 * kP2PSlots; ++i) {
        const std::vector<std::int64_t> sent(9000, i);
        group.p2p_queue().send(other, 0, sent.data(), {sent.size(), Dtype::i64});
      }
    });
    for (int i = 0; i < 3 * kP2PSlots; ++i) {
      receive(group, other, 0, values.data(), {values.size(), Dtype::i64});
      EXPECT_EQ(values.front(), i);
      EXPECT_EQ(values.back(), i);
    }
    sender.join();
  });
}

TEST(P2PQueue, RefusesAMessageOfAnotherSize) {
  run_group(2, [&](Group& group) {
    double value[4] = {};
    if (group.step_sync().rank() == 0) return group.p2p_queue().send(1, 0, value, {4, Dtype::f64});
    const auto text = message_of<CommunicationError>([&] { receive(group, 0, 0, value, {3, Dtype::f32}); });
    EXPECT_TRUE(contains_all(
        text, {"rank 1 of 2: recv from rank 0, tag 0: expected 3 elements of float32, but it sent 4 "
               "elements of float64"}));
  });
}

TEST(P2PQueue, DeliversWhatARankSentBeforeItLeftAndNothingMore) {
  run_group(2, [&](Group& group) {
    std::int32_t value = 7;
    if (group.step_sync().rank() == 0) return group.p2p_queue().send(1, 0, &value, {1, Dtype::i32});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    value = 0;
    receive(group, 0, 0, &value, {1, Dtype::i32});
    EXPECT_EQ(value, 7);
    const auto text = message_of<CommunicationError>([&] { receive(group, 0, 0, &value, {1, Dtype::i32}); });
    EXPECT_TRUE(contains_all(text, {"recv from rank 0, tag 0 failed: rank 0 left the group"}));
  });
}

TEST(Heap, GivesMemoryBackAndUsesItAgain) {
  const auto segment = Segment::create(64U << 20);
  Heap heap(segment, 1U << 20);
  void* const first = heap.allocate(10'000'000);
  void* const second = heap.allocate(100);
  EXPECT_EQ(heap.offset_of(first, 10'000'000), 1 << 20);
  EXPECT_EQ(heap.offset_of(segment->base(), 8), -1);
  EXPECT_EQ(heap.offset_of(&heap, 8), -1);
  std::memset(first, 1, 10'000'000);
  heap.free(first);
  EXPECT_EQ(heap.allocate(10'000'000), first);
  EXPECT_EQ(static_cast<char*>(first)[5'000'000], 0);  // The system took the pages in between.
  EXPECT_EQ(heap.allocate(60'000'000), nullptr);
  heap.free(second);
  heap.free(first);
  EXPECT_EQ(heap.allocate(60'000'000), first);
}

}  // namespace
}  // namespace lockstep::shm
