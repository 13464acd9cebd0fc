#include "shm/futex_event.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::shm {
namespace {

/// Stands still but for what a test lets pass.
struct ManualClock {
  using time_point = std::chrono::steady_clock::time_point;
  static inline time_point time{};
  static time_point now() { return time; }
};

using TestedSpinner = BasicSpinner<ManualClock>;

/// One yield need not give the CPU to the rank that it is for: those of `lockstep run` have sessions of their
/// own, which Linux may schedule as groups.
TEST(Spinner, YieldsForATimeWhereRanksOutnumberTheCpus) {
  TestedSpinner spinner(false);
  int tests = 0;
  EXPECT_TRUE(spinner.wait([&] {
    ManualClock::time += std::chrono::microseconds(1);
    return ++tests == 150;
  }));
  EXPECT_EQ(tests, 150);
}

TEST(Spinner, SleepsAtOnceWhereYieldingDoesNotHelpAndRetriesNowAndThen) {
  TestedSpinner spinner(false);
  int tests = 0;
  const auto keeps_the_cpu = [&] {
    ++tests;
    ManualClock::time += std::chrono::milliseconds(3);
    return false;
  };
  EXPECT_FALSE(spinner.wait(keeps_the_cpu));
  for (unsigned wait = 2; wait < TestedSpinner::kRetry; ++wait) {
    tests = 0;
    EXPECT_FALSE(spinner.wait(keeps_the_cpu));
    EXPECT_EQ(tests, 1);
  }
  tests = 0;
  EXPECT_TRUE(spinner.wait([&] { return ++tests == 100; }));
}

TEST(Spinner, SpinsLessWhereThatDoesNotHelp) {
  TestedSpinner spinner(true);
  int tests = 0;
  const auto never = [&] { return ++tests < 0; };
  EXPECT_FALSE(spinner.wait(never));
  const int first = std::exchange(tests, 0);
  EXPECT_FALSE(spinner.wait(never));
  EXPECT_LT(tests, first);
}

}  // namespace
}  // namespace lockstep::shm
