#include "core/runtime/stop_signals.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

TEST(StopSignals, SetAFlagAndNothingElse) {
  const StopSignals signals({SIGUSR1, SIGTERM});
  EXPECT_EQ(StopSignals::received(), 0);
  ::raise(SIGTERM);
  ::raise(SIGUSR1);
  EXPECT_EQ(StopSignals::received(), SIGTERM);
}

TEST(StopSignals, GiveBackWhatWasThereBefore) {
  struct sigaction before {};
  ::sigaction(SIGUSR1, nullptr, &before);
  {
    const StopSignals signals({SIGUSR1});
    ::raise(SIGUSR1);
  }
  struct sigaction after {};
  ::sigaction(SIGUSR1, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  EXPECT_EQ(StopSignals::received(), SIGUSR1);
  const StopSignals next({SIGUSR1});
  EXPECT_EQ(StopSignals::received(), 0);
}

TEST(StopSignals, MayBeNested) {
  const StopSignals outer({SIGUSR1});
  { const StopSignals inner({SIGUSR1, SIGUSR2}); }
  ::raise(SIGUSR1);
  EXPECT_EQ(StopSignals::received(), SIGUSR1);
}

TEST(StopSignals, LeaveReadsGoingOn) {
  const StopSignals signals({SIGALRM});
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::alarm(1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sleep(2);
    [[maybe_unused]] const auto written = ::write(ends[1], "x", 1);
    ::_exit(0);
  }
  char letter = 0;
  EXPECT_EQ(::read(ends[0], &letter, 1), 1);  // The signal comes meanwhile.
  EXPECT_EQ(StopSignals::received(), SIGALRM);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StopSignals, EndTheProcessWhenThereIsNothingToSave) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const StopSignals signals({SIGTERM});
    ::sigqueue(::getpid(), SIGTERM, {.sival_int = 1});  // Another value is like none.
    if (StopSignals::received() == SIGTERM) ::sigqueue(::getpid(), SIGTERM, {.sival_int = kTerminateNow});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(StopSignals, RefuseWhatCannotBeCaughtAndTakeNothing) {
  EXPECT_THROWS(StopSignals({SIGUSR2, SIGKILL}), UsageError, "signal 9 cannot be caught");
  struct sigaction now {};
  ::sigaction(SIGUSR2, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace lockstep
