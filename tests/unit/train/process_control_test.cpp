// Order of execution, triggers, barriers and missing ranks, with threads as ranks.
#include "lockstep/train/process_execution.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/train/logger.hpp"
#include "support/accelerators.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using testing::run_accelerators;

class EveryWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3));

TEST_P(EveryWorld, WhatTheMainProcessFindsReachesAll) {
  run_accelerators(GetParam(), [](Accelerator& accelerator) {
    EXPECT_EQ(accelerator.on_main_process([] { return std::string("found"); }), "found");
    EXPECT_EQ(accelerator.on_main_process([] { return nlohmann::json{{"a", 1}}; })["a"], 1);
    const at::Tensor tensor = accelerator.on_main_process([] { return torch::arange(3); });
    EXPECT_TRUE(torch::equal(tensor, torch::arange(3)));
    const TensorMap tensors = accelerator.on_main_process([] { return TensorMap{{"x", torch::ones({2})}}; });
    EXPECT_TRUE(torch::equal(tensors.at("x"), torch::ones({2})));
    EXPECT_TRUE(accelerator.on_main_process([] { return true; }));
    EXPECT_EQ(accelerator.on_main_process([] { return std::int64_t{1} << 60; }), std::int64_t{1} << 60);
    EXPECT_TRUE(std::isnan(accelerator.on_main_process([] { return std::nan(""); })));
    EXPECT_EQ(accelerator.on_main_process([] {
      return std::vector<std::string>{"a", "b"};
    }),
              (std::vector<std::string>{"a", "b"}));
    const auto fails = [&] {
      accelerator.on_main_process([]() -> std::string { throw Error("no such file"); });
    };
    EXPECT_TRUE(contains_all(message_of<Error>(fails), {"no such file"}));
    const int last = accelerator.num_processes() - 1;
    const auto there = accelerator.on_process(last, [] { return 7; });
    EXPECT_EQ(there.has_value(), accelerator.process_index() == last);
    EXPECT_EQ(accelerator.on_last_process([] { return 7; }), there);
  });
}

TEST_P(EveryWorld, ATriggerIsSeenByAllOnce) {
  run_accelerators(GetParam(), [](Accelerator& accelerator) {
    EXPECT_FALSE(accelerator.check_trigger());
    if (accelerator.is_last_process()) accelerator.set_trigger();
    EXPECT_TRUE(accelerator.check_trigger());
    EXPECT_FALSE(accelerator.check_trigger());
  });
}

TEST(SetSeed, MayDifferBetweenRanks) {
  run_accelerators(1, [](Accelerator& accelerator) {
    accelerator.set_seed(5, /*device_specific=*/true);
    const at::Tensor first = torch::rand({3});
    torch::manual_seed(5);
    EXPECT_TRUE(torch::equal(first, torch::rand({3})));
  });
}

TEST_P(EveryWorld, NamedBarriersLetAllThrough) {
  std::atomic<int> before{0};
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    for (int round = 1; round <= 3; ++round) {
      ++before;
      accelerator.wait_for_everyone_at("round");
      EXPECT_GE(before, round * accelerator.num_processes());
    }
  });
}

TEST(NamedBarrier, SaysWhoIsMissingAndWhere) {
  ::testing::internal::CaptureStderr();
  run_accelerators(3,
                   [](Accelerator& accelerator) {
                     accelerator.wait_for_everyone_at("start");
                     if (accelerator.process_index() == 1)
                       std::this_thread::sleep_for(std::chrono::milliseconds(500));
                     accelerator.wait_for_everyone_at("data is ready");
                   },
                   {.barrier_warning = std::chrono::milliseconds(100)});
  EXPECT_TRUE(contains_all(
      ::testing::internal::GetCapturedStderr(),
      {"rank 0 has been waiting at 'data is ready' for rank 1 for ", "rank 1 is on its way after 'start'"}));
}

TEST(NamedBarrier, PassesOnAnotherRanksException) {
  run_accelerators(3, [](Accelerator& accelerator) {
    const auto work = [&] {
      accelerator.fail_together([&] {
        if (accelerator.process_index() == 2) throw DataError("shard 17 is empty");
        accelerator.wait_for_everyone_at("prepared");
      });
    };
    if (accelerator.process_index() == 2) {
      EXPECT_THROW(work(), DataError);
    } else {
      const std::string text = message_of<RemoteError>(work);
      EXPECT_TRUE(contains_all(text, {"'prepared'", "rank 2 failed", "shard 17 is empty"}));
    }
  });
}

TEST(NamedBarrier, FindsRanksAtDifferentPlaces) {
  std::atomic<int> failures{0};
  run_accelerators(2, [&](Accelerator& accelerator) {
    try {
      accelerator.wait_for_everyone_at(accelerator.is_main_process() ? "save" : "evaluate");
    } catch (const CommunicationError& error) {
      ++failures;
      EXPECT_TRUE(contains_all(error.what(), {"'save'", "'evaluate'"}));
    }
  });
  EXPECT_EQ(failures, 2);
}

TEST(LoggerTest, WritesByRankAndInOrder) {
  ::testing::internal::CaptureStderr();
  run_accelerators(3, [](Accelerator& accelerator) {
    const Logger logger(accelerator, "train");
    logger.info("begin ", 1);
    logger.debug("too fine");
    logger.log(LogLevel::warning, LogFrom::in_order, "rank ", accelerator.process_index());
  });
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains_all(text, {" INFO train: begin 1\n", " WARNING [RANK 0] train: rank 0\n"}));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_LT(text.find("[RANK 0]"), text.find("[RANK 1]"));
  EXPECT_LT(text.find("[RANK 1]"), text.find("[RANK 2]"));
}

}  // namespace
}  // namespace lockstep
