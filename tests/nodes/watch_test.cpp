// Ranks of several hosts that hang, and their stacks.

#include <unistd.h>

#include <csignal>
#include <sstream>

#include "hosts_test.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {
namespace {

class Watch : public Hosts {
 protected:
  /// Two ranks on each of two hosts, which wait for the one with that number.
  Words job(const std::string& stuck, const Words& flags) const {
    return c10d("2", "2") + flags + Words{LOCKSTEP_BEATING_RANK, stuck, folder().path()};
  }
  void start_job(const std::string& stuck, const Words& flags = {}) {
    make_hosts(2);
    first_ = start(0, job(stuck, flags));
    second_ = start(1, job(stuck, flags));
    for (int rank = 0; rank < 4; ++rank) await_number(folder().file(std::to_string(rank)));
  }

  std::unique_ptr<LauncherProcess> first_;
  std::unique_ptr<LauncherProcess> second_;
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// The rank works, so its own launcher alone could not tell that others wait for it; and they, on both hosts,
/// could not tell whom they wait for.
TEST_F(Watch, HangingRankIsNamedOnBothNodes) {
  start_job("3", {"--heartbeat-timeout", "3"});
  const Finished a = first_->wait();
  const Finished b = second_->wait();
  for (const Finished& end : {a, b}) {
    EXPECT_EQ(end.status, 124) << end.err;
    EXPECT_TRUE(has(end.err, "FAILED: rank 3 (node 1, host node1, local rank 1, pid "));
    EXPECT_TRUE(has(end.err, "made no progress (--heartbeat-timeout)"));
    EXPECT_TRUE(
        has(end.err, "last seen in evaluation, step 0; ranks 0, 1, 2 have been waiting in all_reduce #412"));
  }
  EXPECT_TRUE(has(b.err, "stacks of rank 3"));
  EXPECT_TRUE(has(b.err, "hang_for_ever()")) << "the function that it hangs in";
  EXPECT_EQ(count(a.err, "stacks of rank"), 0) << "nothing to be seen on the node where all wait";
}

TEST_F(Watch, RankThatExitedIsNamedByTheWaitingNodes) {
  make_hosts(2);
  // Node 1's only rank beats once and leaves; it is told of when its node has ended.
  const Words flags{"--heartbeat-timeout", "3"};
  first_ = start(0, c10d("2") + flags + Words{LOCKSTEP_BEATING_RANK, "1", folder().path()});
  second_ = start(1, c10d("2") + flags + Words{LOCKSTEP_BEATING_RANK, "leave", folder().path()});
  const Finished a = first_->wait();
  EXPECT_EQ(a.status, 124) << a.err;
  EXPECT_TRUE(has(a.err, "FAILED: rank 0 (node 0, host node0, local rank 0, pid "));
  EXPECT_TRUE(has(a.err, "left at step 0 (exit code 0); rank 0 has been waiting in all_reduce #412"));
  EXPECT_EQ(second_->wait().status, 124);
}

/// Before it is stopped, and by the launcher that has it.
TEST_F(Watch, AwaitedRankPrintsItsStackAfterATimeoutElsewhere) {
  make_hosts(2);
  const Words words = c10d("2") + Words{LOCKSTEP_BEATING_RANK, "1", folder().path(), "gives up"};
  first_ = start(0, words);
  second_ = start(1, words);
  for (const auto* launcher : {&first_, &second_}) {
    const Finished end = (*launcher)->wait();
    EXPECT_EQ(end.status, kTimeoutExitCode) << end.err;
    EXPECT_TRUE(has(end.err, "FAILED: rank 0 (node 0, host node0, local rank 0, pid "));
    const bool hangs_here = launcher == &second_;
    EXPECT_EQ(count(end.err, "stacks of rank 1 (pid "), hangs_here ? 1 : 0) << end.err;
    EXPECT_EQ(count(end.err, "hang_for_ever()") > 0, hangs_here) << end.err;
  }
}

/// All processes that descend from it, and itself.
std::vector<pid_t> family_of(pid_t process) {
  std::vector<pid_t> family{process};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const std::string of = std::to_string(family[i]);
    std::istringstream children(read_file("/proc/" + of + "/task/" + of + "/children"));
    for (pid_t child = 0; children >> child;) family.push_back(child);
  }
  return family;
}

/// Stops the processes for so long, as a scheduler that suspends a job does.
void pause_all(const std::vector<pid_t>& processes, std::chrono::seconds time) {
  for (const pid_t process : processes) kill(process, SIGSTOP);
  sleep(static_cast<unsigned>(time.count()));
  for (const pid_t process : processes) kill(process, SIGCONT);
}

/// Longer than three signs of life, and than the heartbeat timeout.
TEST_F(Watch, JobSuspendedOnAllNodesContinues) {
  make_hosts(2);
  const Words words =
      c10d("2", "2", 2) + Words{"--heartbeat-timeout", "4", LOCKSTEP_BEATING_RANK, "work", folder().path()};
  first_ = start(0, words);
  second_ = start(1, words);
  for (int rank = 0; rank < 4; ++rank) await_number(folder().file(std::to_string(rank)));
  std::vector<pid_t> all = family_of(first_->pid());
  for (const pid_t process : family_of(second_->pid())) all.push_back(process);
  EXPECT_GE(all.size(), 6U);
  pause_all(all, std::chrono::seconds(10));
  for (auto* launcher : {first_.get(), second_.get()}) {
    const Finished end = launcher->wait();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_EQ(count(end.err, "keep-alive") + count(end.err, "hang"), 0) << end.err;
  }
}

TEST_F(Watch, JobSuspendedOnOneHostContinues) {
  make_hosts(1);
  first_ = start(0, {"--nproc-per-node", "2", "--heartbeat-timeout", "3", LOCKSTEP_BEATING_RANK, "work",
                     folder().path()});
  for (int rank = 0; rank < 2; ++rank) await_number(folder().file(std::to_string(rank)));
  for (int i = 0; i < 2; ++i) {
    pause_all(family_of(first_->pid()), std::chrono::seconds(5));
    usleep(300'000);
  }
  const Finished end = first_->wait();
  EXPECT_EQ(end.status, 0) << end.err;
}

TEST_F(Watch, StacksOfAllNodesArePrintedByTheRequester) {
  start_job("0");
  for (LauncherProcess* asked : {first_.get(), second_.get()}) {
    EXPECT_EQ(launch({"stacks", std::to_string(asked->pid())}).status, 0);
    EXPECT_TRUE(eventually([&] { return count(asked->err(), "stacks of rank") == 4; })) << asked->err();
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(count(asked->err(), "stacks of rank " + std::to_string(rank) + " "), 1);
  }
  EXPECT_EQ(count(first_->err(), "stacks of rank"), 4) << "only who asks gets them";
  EXPECT_TRUE(has(first_->err(), "lockstep run: host node1:"));
  EXPECT_TRUE(has(second_->err(), "lockstep run: host node0:"));
  first_->signal(SIGTERM);
  EXPECT_EQ(first_->wait().status, 128 + SIGTERM);
  EXPECT_EQ(second_->wait().status, 128 + SIGTERM);
}

}  // namespace
}  // namespace lockstep::launch
