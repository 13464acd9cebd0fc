#include "comm/operation_queue.hpp"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace lockstep::comm {
namespace {

/// From three threads, some of which wait and some do not: one at a time, in the order of the calls.
TEST(OperationQueue, RunsInOrderWhoeverWaits) {
  std::vector<int> order;
  {
    OperationQueue queue;
    std::vector<OperationQueue::Handle> entries;
    for (int i = 0; i < 300; ++i) {
      entries.push_back(queue.add([&order, i] { order.push_back(i); }, i % 7 == 0));
      if (i % 5 == 0) queue.wait(entries.back());
    }
    std::thread one([&] { queue.wait(entries[250]); });
    std::thread two([&] { queue.wait(entries[280]); });
    one.join();
    two.join();
    EXPECT_TRUE(queue.is_done(entries[280]));
  }
  ASSERT_EQ(order.size(), 300U);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(OperationQueue, RunsWhatNobodyWaitsFor) {
  OperationQueue queue;
  for (int round = 0; round < 2; ++round) {
    std::promise<void> ran;
    queue.add([&] { ran.set_value(); }, false);
    EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // Long enough for the worker to doze.
  }
}

/// However large it is: nothing is won by waking another thread for it.
TEST(OperationQueue, RunsInTheCallersThreadWhatTheCallerWaitsFor) {
  OperationQueue queue;
  queue.wait(queue.add([] {}, true));  // The worker is awake.
  for (int i = 0; i < 100; ++i) {
    std::thread::id ran_in;
    const CallerWaits waits;
    queue.wait(queue.add([&] { ran_in = std::this_thread::get_id(); }, true));
    ASSERT_EQ(ran_in, std::this_thread::get_id());
  }
}

TEST(OperationQueue, RunsAtOnceBehindWhatWasAdded) {
  std::vector<int> order;
  OperationQueue queue;
  for (int i = 0; i < 100; ++i) {
    const bool behind_another = i % 3 == 0;
    if (behind_another) queue.add([&order, i] { order.push_back(2 * i); }, i % 2 == 0);
    if (!behind_another) queue.run([&order, i] { order.push_back(2 * i); });
    queue.run([&order, i] { order.push_back(2 * i + 1); });
    ASSERT_EQ(order.size(), static_cast<std::size_t>(2 * i + 2));
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_THROW(queue.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  queue.run([&] { order.clear(); });
  EXPECT_TRUE(order.empty());
}

TEST(OperationQueue, HandsFailuresToWaitersAndCallbacks) {
  OperationQueue queue;
  const auto entry = queue.add([] { throw std::runtime_error("no"); }, false);
  std::promise<bool> failed;
  queue.when_done(entry, [&](const std::exception_ptr& failure) { failed.set_value(failure != nullptr); });
  EXPECT_TRUE(failed.get_future().get());
  EXPECT_THROW(queue.wait(entry), std::runtime_error);
  EXPECT_THROW(queue.wait(entry), std::runtime_error);
  bool called = false;
  queue.when_done(entry, [&](const std::exception_ptr&) { called = true; });
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace lockstep::comm
