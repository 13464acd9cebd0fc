#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/runtime/process_handle.hpp"
#include "launcher_process.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

void reap(pid_t process) { EXPECT_EQ(waitpid(process, nullptr, 0), process); }

TEST(SpawnedProcess, HasBegunWhenItsProgramHas) {
  SpawnedProcess process({"true"}, process_environment(), [] {});
  EXPECT_TRUE(eventually([&] { return process.has_begun(milliseconds(5)); }));
  EXPECT_TRUE(process.has_begun(milliseconds(0))) << "and remains so";
  reap(process.pid());
}

TEST(SpawnedProcess, SaysWhyItCannotBegin) {
  SpawnedProcess process({"/absent/program"}, process_environment(), [] {});
  try {
    EXPECT_FALSE(eventually([&] { return process.has_begun(milliseconds(5)); }));
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.exit_code(), 127);
    EXPECT_NE(std::string(error.what()).find("/absent/program"), std::string::npos);
  }
  EXPECT_EQ(waitpid(process.pid(), nullptr, 0), -1) << "nothing of it is left";
}

/// As on a file system that hangs: exec does not come.
TEST(SpawnedProcess, IsNotWaitedForWhileItDoesNotBegin) {
  SpawnedProcess process({"true"}, process_environment(), [] {
    for (;;) pause();
  });
  EXPECT_FALSE(process.has_begun(milliseconds(10)));
  EXPECT_GT(process.deadline(), net::Clock::now());
  EXPECT_GE(process.descriptor(), 0) << "for the event loop";
  kill(process.pid(), SIGKILL);
  reap(process.pid());
}

TEST(ProcessStat, IsThatOfTheProcess) {
  const auto stat = process_stat(getpid());
  EXPECT_EQ(stat.parent, getppid());
  EXPECT_EQ(stat.state, 'R');
  EXPECT_GT(stat.start, 0U);
  EXPECT_EQ(process_stat(0x7fffffff).state, 0);
}

/// Whether a handle reaches a living process, and says that a dead one is gone.
int handle_works() {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const ProcessHandle handle(child);
  const bool reached = handle.signal(SIGKILL);
  waitpid(child, nullptr, 0);
  return reached && !handle.signal(SIGKILL) && !ProcessHandle(child).signal(SIGKILL) ? 0 : 1;
}

TEST(ProcessHandle, ReachesOneProcessAndNoOther) { EXPECT_EQ(handle_works(), 0); }

TEST(ProcessHandle, DoesSoWhereTheSystemHasNoPidfds) {
  const pid_t child = fork();
  if (child == 0) {
    forbid_pidfds();
    _exit(handle_works());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::launch
