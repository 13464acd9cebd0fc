#include "core/runtime/process_handle.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/without_pidfds.hpp"

namespace lockstep {
namespace {

/// What a child finds out about a grandchild that it kills, as the bits of its exit status.
enum : int { kAlive = 1, kZombieHasEnded = 2, kGoneHasEnded = 4, kHasDescriptor = 8, kNoFilter = 16 };

int look_at_a_child_that_dies() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const ProcessHandle handle(child);
  int seen = handle.has_ended() ? 0 : kAlive;
  if (handle.descriptor() >= 0) seen |= kHasDescriptor;
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  if (handle.has_ended()) seen |= kZombieHasEnded;
  waitpid(child, nullptr, 0);
  if (handle.has_ended()) seen |= kGoneHasEnded;
  return seen;
}

/// In a process of its own, as no process can take a filter back.
int in_a_child(bool with_pidfds) {
  const pid_t child = fork();
  if (child == 0) {
    if (!with_pidfds && !testing::live_without_pidfds()) _exit(kNoFilter);
    _exit(look_at_a_child_that_dies());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

TEST(ProcessHandle, SeesAProcessEnd) {
  EXPECT_EQ(in_a_child(true), kAlive | kZombieHasEnded | kGoneHasEnded | kHasDescriptor);
}

/// Kernels before 5.3.
TEST(ProcessHandle, SeesAProcessEndWithoutPidfds) {
  EXPECT_EQ(in_a_child(false), kAlive | kZombieHasEnded | kGoneHasEnded);
}

TEST(ProcessHandle, OfNobodyNeverEnds) { EXPECT_FALSE(ProcessHandle().has_ended()); }

TEST(ProcessHandle, MovesWithWhatItWatches) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  ProcessHandle first(child);
  ProcessHandle second(std::move(first));
  EXPECT_TRUE(second.has_ended());
  ProcessHandle third;
  third = std::move(second);
  EXPECT_TRUE(third.has_ended());
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lockstep
