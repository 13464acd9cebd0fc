#include "core/running_clock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

namespace lockstep {
namespace {

TEST(RunningClock, AdvancesLikeTheMonotonicClock) {
  const auto steady = std::chrono::steady_clock::now();
  const auto begin = RunningClock::now();
  for (int i = 0; i < 20; ++i) {
    const auto before = RunningClock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_GT(RunningClock::now(), before);
  }
  const auto passed = RunningClock::now() - begin;
  EXPECT_GE(passed, std::chrono::milliseconds(400));
  EXPECT_LE(passed, std::chrono::steady_clock::now() - steady);
  EXPECT_LT(RunningClock::at(steady) - begin, std::chrono::milliseconds(400));
}

TEST(RunningClock, IsTheMonotonicOneInAChildWithoutItsThread) {
  const auto begin = RunningClock::now();
  const pid_t child = fork();
  if (child == 0) {
    usleep(2'500'000);
    _exit(RunningClock::now() - begin >= std::chrono::milliseconds(2400) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// A pause of 4 s, of which at most 1.25 s count.
TEST(RunningClock, LeavesOutThePausesOfItsProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(LOCKSTEP_PAUSED_PROGRAM, LOCKSTEP_PAUSED_PROGRAM, nullptr);
    _exit(127);
  }
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  usleep(4'000'000);
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::FILE* const out = fdopen(ends[0], "r");
  long running = 0, steady = 0, begin = 0, since_middle = 0;
  int held = 0;
  ASSERT_EQ(std::fscanf(out, "%ld %ld %ld %ld %d", &running, &steady, &begin, &since_middle, &held), 5);
  std::fclose(out);
  EXPECT_GE(steady, 4500);
  EXPECT_GE(running, 500);
  EXPECT_LT(running, steady - 2500);
  EXPECT_NEAR(static_cast<double>(begin), 0, 100);
  EXPECT_LT(since_middle, 1300) << "most of the second half is left out, too";
  EXPECT_EQ(held, 1) << "a deadline that passed in the pause has not come";
}

}  // namespace
}  // namespace lockstep
