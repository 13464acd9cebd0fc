#include "core/runtime/spent_time.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "core/runtime/rank_counters.hpp"

namespace lockstep {
namespace {

void pass(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// In a thread of its own, which has no time of other tests.
std::map<std::string, double> spent_in(const std::function<void()>& work) {
  std::map<std::string, double> found;
  std::thread([&] {
    work();
    found = spent_time();
  }).join();
  return found;
}

TEST(SpentTime, BelongsToTheInnermostPartWithoutWaits) {
  std::chrono::duration<double> whole{};
  auto found = spent_in([&] {
    const auto begin = std::chrono::steady_clock::now();
    const int outer = 0, inner = 0;
    begin_part(&outer, "backward");
    pass(20);
    begin_part(&inner, "mine");
    pass(30);
    end_part(&inner);
    {
      const WaitTime wait;
      pass(40);
    }
    end_part(&outer);
    whole = std::chrono::steady_clock::now() - begin;
  });
  EXPECT_EQ(found.size(), 3U);
  EXPECT_GE(found["backward"], 0.02);
  EXPECT_GE(found["mine"], 0.03);
  EXPECT_GE(found["communication"], 0.04);
  EXPECT_LE(found["backward"] + found["mine"] + found["communication"], whole.count());
}

TEST(SpentTime, OfAnEvaluationIsAllWithinIt) {
  auto found = spent_in([] {
    const int outer = 0, inner = 0;
    begin_part(&outer, "evaluation");
    begin_part(&inner, "forward");
    pass(20);
    end_part(&inner);
    end_part(&outer);
  });
  EXPECT_GE(found["evaluation"], 0.02);
  EXPECT_FALSE(found.contains("forward"));
}

/// A forward that throws stays open until the next one.
TEST(SpentTime, EndsWhatBeganAfterAPart) {
  auto found = spent_in([] {
    const int outer = 0, inner = 0;
    begin_part(&outer, "outer");
    begin_part(&inner, "inner");
    end_part(&outer);
    end_part(&inner);
    const auto before = spent_time();
    pass(20);
    EXPECT_EQ(spent_time(), before);
  });
  EXPECT_EQ(found.size(), 3U);
}

}  // namespace
}  // namespace lockstep
