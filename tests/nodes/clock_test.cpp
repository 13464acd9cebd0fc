// Hosts whose clocks differ. No effect on the job.

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

/// In a child process before exec: what it starts sees a monotonic clock that is so many seconds ahead. False
/// where this process may not have such a clock, or the kernel has none.
bool shift_monotonic_clock(long seconds) {
  if (unshare(CLONE_NEWTIME) != 0) return false;
  std::ofstream offsets("/proc/self/timens_offsets");
  offsets << "monotonic " << seconds << " 0\nboottime " << seconds << " 0\n" << std::flush;
  if (!offsets) return false;
  // Namespaces of time are entered by exec or by hand.
  const int entered = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
  return entered >= 0 && setns(entered, CLONE_NEWTIME) == 0 && close(entered) == 0;
}

bool can_shift_monotonic_clock() {
  const pid_t child = fork();
  if (child == 0) _exit(shift_monotonic_clock(1) ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

class Clocks : public Hosts {
 protected:
  static constexpr int kLease = 3;  // Seconds: three signs of life.

  Words job() const {
    // Longer than a lease, with signs of life that must be heard in time.
    return c10d("2", "1", 1) + Words{"sh", "-c", "sleep " + std::to_string(kLease + 2)};
  }
  void expect_success(LauncherProcess& node) const {
    const Finished end = node.wait();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_EQ(end.err.find("sent no keep-alive"), std::string::npos) << end.err;
  }
};

TEST_F(Clocks, DifferingWallClocksAreReportedAndHaveNoEffect) {
  make_hosts(2);
  auto first = start(0, job());
  auto second = start(1, job(), {{"LD_PRELOAD", LOCKSTEP_SHIFTED_CLOCK}, {"SHIFTED_CLOCK", "-60"}});
  const Finished a = first->wait();
  const Finished b = second->wait();
  for (const Finished& end : {a, b}) {
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_TRUE(has(end.err, "(host node1, process "));
    EXPECT_TRUE(has(end.err, "behind the coordinator's"));
  }
}

TEST_F(Clocks, AgreeingClocksAreNotReported) {
  make_hosts(2);
  auto first = start(0, c10d("2") + Words{"true"});
  auto second = start(1, c10d("2") + Words{"true"});
  const Finished end = first->wait();
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.err.find("wall clock"), std::string::npos) << end.err;
  expect_success(*second);
}

/// As on real hosts, where it counts from their boot.
TEST_F(Clocks, DifferingMonotonicClocksHaveNoEffect) {
  if (!can_shift_monotonic_clock()) GTEST_SKIP() << "no time namespaces here (Linux 5.6, CAP_SYS_ADMIN)";
  make_hosts(2);
  for (const int host : {1, 0}) {
    const auto shift = [] {
      if (!shift_monotonic_clock(100'000)) _exit(98);
    };
    auto shifted = start(host, job(), {}, shift);
    auto other = start(1 - host, job());
    expect_success(*shifted);
    expect_success(*other);
  }
}

TEST_F(Clocks, LostNodeIsDetectedUnderAnotherMonotonicClock) {
  if (!can_shift_monotonic_clock()) GTEST_SKIP() << "no time namespaces here (Linux 5.6, CAP_SYS_ADMIN)";
  make_hosts(2);
  auto first = start(0, c10d("2", "1", 1) + sleeper("100"));
  auto second = start(1, c10d("2", "1", 1) + sleeper("100"), {}, [] {
    if (!shift_monotonic_clock(100'000)) _exit(98);
  });
  await_number(folder().file("pid"));
  network().cut(1);
  EXPECT_TRUE(has(first->wait().err, "sent no keep-alive for 3 s"));
  EXPECT_TRUE(has(second->wait().err, "sent no keep-alive for 3 s"));
}

}  // namespace
}  // namespace lockstep::launch
