#include "comm/backend/operation_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
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

/// The first only waits for what the second does.
TEST(OperationQueue, LetsTheNextBeginWhereOperationsOverlap) {
  std::promise<void> second_began;
  OperationQueue queue(-1, 2);
  const auto first = queue.add(
      [&] {
        OperationQueue::let_next_begin();
        second_began.get_future().wait();
      },
      true);
  const auto second = queue.add([&] { second_began.set_value(); }, true);
  queue.wait(first);  // Would not return if the second began only after it.
  queue.wait(second);
}

/// Adds an operation that waits for `second_began`, and returns when a worker is in it.
OperationQueue::Handle add_one_that_waits(OperationQueue& queue, std::promise<void>& second_began) {
  const auto waits = std::make_shared<std::promise<void>>();
  auto first = queue.add(
      [waits, &second_began] {
        OperationQueue::let_next_begin();
        waits->set_value();
        second_began.get_future().wait();
      },
      true);
  waits->get_future().wait();
  return first;
}

/// The second is added when the only worker is in the first already, which waits for it.
TEST(OperationQueue, BeginsWhatIsAddedLaterWhereOperationsOverlap) {
  for (const bool urgent : {true, false}) {
    std::promise<void> second_began;
    OperationQueue queue(-1, 2);
    const auto first = add_one_that_waits(queue, second_began);
    const auto second = queue.add([&] { second_began.set_value(); }, urgent);
    queue.wait(first);
    queue.wait(second);
  }
}

/// One worker dozes while the other is in an operation that takes long.
TEST(OperationQueue, EndsWithTheLastOperationWhoeverDozes) {
  std::promise<void> second_began, third_began;
  OperationQueue queue(-1, 2);
  add_one_that_waits(queue, second_began);
  queue.add([&] { second_began.set_value(); }, true);
  queue.add(
      [&] {
        OperationQueue::let_next_begin();
        third_began.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
      },
      true);
  third_began.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // Long enough for the other to doze.
  queue.close();
}

/// Of an operation that is made of several no other may come between the parts.
TEST(OperationQueue, KeepsOthersBackWhereAnOperationDoesNotOverlap) {
  OperationQueue queue(-1, 2);
  std::atomic<bool> ended{false}, seen{false};
  queue.add(
      [&] {
        OperationQueue::let_next_begin();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ended = true;
      },
      true, false);
  queue.wait(queue.add([&] { seen = ended.load(); }, true));
  EXPECT_TRUE(seen);
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

/// Keeps the worker of a queue busy, and the queue itself free, so that who waits runs what it waits for.
class BusyWorker {
 public:
  explicit BusyWorker(OperationQueue& queue) {
    const auto entry = queue.add([this] { registered_.get_future().wait(); }, true);
    queue.when_done(entry, [this, end = may_end_.get_future().share()](const std::exception_ptr&) {
      busy_.set_value();
      end.wait();
    });
    registered_.set_value();
    busy_.get_future().wait();
  }
  ~BusyWorker() { may_end_.set_value(); }
  BusyWorker(const BusyWorker&) = delete;
  BusyWorker& operator=(const BusyWorker&) = delete;

 private:
  std::promise<void> registered_;
  std::promise<void> busy_;
  std::promise<void> may_end_;
};

/// Who waits may run what others have added, and its callback: that code does not wait for what it adds.
TEST(OperationQueue, DoesNotTakeTheCodeThatItRunsForACallerThatWaits) {
  OperationQueue queue;
  const BusyWorker busy(queue);
  const auto here = std::this_thread::get_id();
  std::vector<bool> waits_in_body, waits_in_callback;
  const auto look = [&] {
    ASSERT_EQ(std::this_thread::get_id(), here);
    waits_in_body.push_back(CallerWaits::now());
  };
  const auto others = queue.add(look, false);
  queue.when_done(others,
                  [&](const std::exception_ptr&) { waits_in_callback.push_back(CallerWaits::now()); });
  const CallerWaits waits;
  queue.wait(queue.add(look, false));
  queue.run(look);
  EXPECT_EQ(waits_in_body, std::vector<bool>(3, false));
  EXPECT_EQ(waits_in_callback, std::vector<bool>{false});
  EXPECT_TRUE(CallerWaits::now());
}

TEST(OperationQueue, RunsAtOnceAfterQueuedOperations) {
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
