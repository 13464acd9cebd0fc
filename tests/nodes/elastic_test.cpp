#include <sys/resource.h>

#include <csignal>

#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

/// Writes the pid of each rank where the test finds it, and works on.
std::string rank_script(const std::string& folder, const std::string& then = "sleep 100") {
  return "echo $$ > " + folder + "/.$RANK.$$; mv " + folder + "/.$RANK.$$ " + folder +
         "/$RANK.$WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; " + then;
}

class Elastic : public Hosts {
 protected:
  Words ranks(const std::string& then = "exec sleep 100") const {
    return {"sh", "-c", rank_script(folder().path(), then)};
  }
  /// The pid of a rank, awaited.
  pid_t rank(int number, int world, int restart = 0) const {
    return await_number(
        folder().file(std::to_string(number) + "." + std::to_string(world) + "." + std::to_string(restart)));
  }
};

TEST_F(Elastic, FirstFailureIsReportedAlikeOnEveryNode) {
  make_hosts(3);
  std::vector<std::unique_ptr<LauncherProcess>> nodes;
  for (int i = 0; i < 3; ++i) nodes.push_back(start(i, c10d("3", "2") + ranks()));
  for (int i = 0; i < 6; ++i) rank(i, 6);
  const pid_t victim = rank(3, 6);
  kill(victim, SIGKILL);
  for (auto& node : nodes) {
    const Finished end = node->wait();
    EXPECT_EQ(end.status, 128 + SIGKILL) << end.err;
    EXPECT_TRUE(
        has(end.err, "FAILED: rank 3 (node 1, host node1, local rank 1, pid " + std::to_string(victim)));
  }
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(await_end(rank(i, 6))) << i;
}

TEST_F(Elastic, RestartRestartsAllNodesAndIsCountedOnce) {
  make_hosts(2);
  const std::string fail_once =
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = $TORCHELASTIC_RESTART_COUNT ] && exit 9; "
      "sleep 100";
  auto first =
      start(0, c10d("2") + Words{"--max-restarts", "2", "--restart-backoff", "0"} + ranks(fail_once));
  auto second =
      start(1, c10d("2") + Words{"--max-restarts", "2", "--restart-backoff", "0"} + ranks(fail_once));
  EXPECT_EQ(first->wait().status, 0);
  const Finished end = second->wait();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(has(end.err, "FAILED: rank 0 (node 0, host node0"));
  EXPECT_TRUE(has(end.err, "FAILED: rank 1 (node 1, host node1"));
  EXPECT_TRUE(has(end.err, "restart 2 of 2"));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(await_end(rank(i, 2, 2)));
}

TEST_F(Elastic, JoiningNodeEnlargesTheJobAndLeavingNodeShrinksIt) {
  make_hosts(2);
  auto first = start(0, c10d("1:2") + ranks());
  const pid_t alone = rank(0, 1);
  auto second = start(1, c10d("1:2") + ranks());
  const pid_t zero = rank(0, 2);
  const pid_t one = rank(1, 2);
  EXPECT_TRUE(await_end(alone));
  unlink(folder().file("0.1.0").c_str());
  second->signal(SIGTERM);
  EXPECT_EQ(second->wait().status, 128 + SIGTERM);
  EXPECT_TRUE(await_end(one));
  EXPECT_TRUE(await_end(zero));
  rank(0, 1);
  first->signal(SIGTERM);
  const Finished end = first->wait();
  EXPECT_EQ(end.status, 128 + SIGTERM);
  EXPECT_TRUE(has(end.err, "joined: restarting the ranks with it"));
  EXPECT_TRUE(has(end.err, "the job continues without it"));
}

TEST_F(Elastic, LostNodeIsReplacedByAnother) {
  make_hosts(3);
  auto first = start(0, c10d("2") + Words{"--max-restarts", "1"} + ranks());
  auto second = start(1, c10d("2") + Words{"--max-restarts", "1"} + ranks());
  const pid_t orphan = rank(1, 2);
  second->signal(SIGKILL);
  EXPECT_TRUE(await_end(orphan)) << "a rank outlived its launcher";
  // One that came before the loss is known would be a spare, which takes the place without a restart.
  EXPECT_TRUE(eventually([&] { return first->err().find("restart 1 of 1") != std::string::npos; }));
  auto third = start(2, c10d("2") + Words{"--max-restarts", "1"} + ranks());
  rank(0, 2, 1);
  rank(1, 2, 1);
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait().status, 128 + SIGTERM);
  const Finished end = third->wait();
  EXPECT_EQ(end.status, 128 + SIGTERM);
  EXPECT_TRUE(has(end.err, "node 1 = node2 (rank 1)"));
}

TEST_F(Elastic, JobSurvivesLossOfRankZerosNodeIfItIsNotTheCoordinator) {
  make_hosts(3);
  // Node numbers as asked for: the coordinator is on host 0, rank 0 on host 1.
  const auto job = [&](int node) { return c10d("2:3") + Words{"--node-rank", std::to_string(node)}; };
  auto coordinator = start(0, job(2) + ranks());
  auto zero = start(1, job(0) + ranks());
  auto one = start(2, job(1) + ranks());
  for (int i = 0; i < 3; ++i) rank(i, 3);
  zero->signal(SIGKILL);
  rank(0, 2);
  rank(1, 2);
  coordinator->signal(SIGTERM);
  EXPECT_EQ(coordinator->wait().status, 128 + SIGTERM);
  EXPECT_EQ(one->wait().status, 128 + SIGTERM);
}

TEST_F(Elastic, KilledLauncherIsDetectedAndNamed) {
  make_hosts(2);
  auto first = start(0, c10d("2") + ranks());
  auto second = start(1, c10d("2") + ranks());
  rank(0, 2);
  const pid_t orphan = rank(1, 2);
  second->signal(SIGKILL);
  const Finished end = first->wait();
  EXPECT_EQ(end.status, 1) << end.err;
  EXPECT_TRUE(
      has(end.err, "FAILED: node 1 (host node1, process " + std::to_string(second->pid()) + ") closed"));
  EXPECT_TRUE(await_end(orphan));
}

TEST_F(Elastic, KilledCoordinatorEndsAllNodes) {
  make_hosts(2);
  auto first = start(0, c10d("2") + ranks());
  auto second = start(1, c10d("2") + ranks());
  const pid_t orphan = rank(0, 2);
  rank(1, 2);
  first->signal(SIGKILL);
  const Finished end = second->wait();
  EXPECT_EQ(end.status, 1) << end.err;
  EXPECT_TRUE(has(end.err, "FAILED: the job's coordinator, at 10.77.0.1:29400, closed its connection"));
  EXPECT_TRUE(await_end(orphan));
  EXPECT_TRUE(await_end(rank(1, 2)));
}

TEST_F(Elastic, BothSidesOfACutNetworkEndWithAMessage) {
  make_hosts(2);
  auto first = start(0, c10d("2", "1", 1) + ranks());
  auto second = start(1, c10d("2", "1", 1) + ranks());
  rank(0, 2);
  rank(1, 2);
  network().cut(1);
  const Finished a = first->wait();
  const Finished b = second->wait();
  EXPECT_EQ(a.status, 1);
  EXPECT_EQ(b.status, 1);
  EXPECT_TRUE(has(a.err, "FAILED: node 1 (host node1"));
  EXPECT_TRUE(has(a.err, "no keep-alive for 3 s"));
  EXPECT_TRUE(has(b.err, "FAILED: the job's coordinator, at 10.77.0.1:29400, sent no keep-alive for 3 s"));
  EXPECT_TRUE(await_end(rank(1, 2))) << "the cut off side trains on";
}

TEST_F(Elastic, FrozenLauncherCountsAsLost) {
  make_hosts(2);
  auto first = start(0, c10d("1:2", "1", 1) + ranks());
  auto second = start(1, c10d("1:2", "1", 1) + ranks());
  rank(1, 2);
  second->signal(SIGSTOP);
  rank(0, 1);
  second->signal(SIGCONT);
  EXPECT_EQ(second->wait().status, 1);
  first->signal(SIGINT);
  EXPECT_EQ(first->wait().status, 128 + SIGINT);
}

/// Each rank has two pipes for --tee: a few ranks start, and then there are no descriptors left.
TEST_F(Elastic, NodeThatCannotStartItsRanksReportsWhyToTheOthers) {
  make_hosts(2);
  const Words flags = c10d("2", "30") + Words{"--tee", "3"};
  auto first = start(0, flags + ranks());
  auto second = start(1, flags + ranks(), {}, [] {
    const rlimit few{50, 50};
    setrlimit(RLIMIT_NOFILE, &few);
  });
  const Finished a = first->wait();
  const Finished b = second->wait();
  for (const Finished& end : {a, b}) {
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "(node 1, host node1, local rank "));
    EXPECT_TRUE(has(end.err, ") could not be started"));
    EXPECT_TRUE(has(end.err, "Too many open files"));
    EXPECT_EQ(end.err.find("local rank 0, sh) could not"), std::string::npos) << end.err;
  }
}

TEST_F(Elastic, SignalIsForwardedToAllNodesOfAFixedJob) {
  make_hosts(2);
  for (const int host : {0, 1}) {
    auto first = start(0, c10d("2") + ranks());
    auto second = start(1, c10d("2") + ranks());
    const pid_t zero = rank(0, 2);
    const pid_t one = rank(1, 2);
    (host == 0 ? first : second)->signal(SIGTERM);
    EXPECT_EQ(first->wait().status, 128 + SIGTERM);
    EXPECT_EQ(second->wait().status, 128 + SIGTERM);
    EXPECT_TRUE(await_end(zero));
    EXPECT_TRUE(await_end(one));
    unlink(folder().file("0.2.0").c_str());
    unlink(folder().file("1.2.0").c_str());
  }
}

TEST_F(Elastic, LauncherThatWaitsForOthersEndsOnASignal) {
  make_hosts(2);
  // Its own rank is done: it waits for the other node's.
  auto first = start(0, c10d("2") + ranks("[ $RANK = 0 ] && exit 0; exec sleep 100"));
  auto second = start(1, c10d("2") + ranks("[ $RANK = 0 ] && exit 0; exec sleep 100"));
  rank(1, 2);
  EXPECT_TRUE(await_end(rank(0, 2)));
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait().status, 128 + SIGTERM);
  EXPECT_EQ(second->wait().status, 128 + SIGTERM);
}

TEST_F(Elastic, WaitingLauncherEndsOnASignal) {
  make_hosts(2);
  auto coordinator = start(0, c10d("2") + ranks());
  usleep(500'000);
  coordinator->signal(SIGINT);
  EXPECT_EQ(coordinator->wait().status, 128 + SIGINT);
  auto member = start(1, c10d("2") + ranks());
  usleep(500'000);
  member->signal(SIGINT);
  EXPECT_EQ(member->wait().status, 128 + SIGINT);
}

}  // namespace
}  // namespace lockstep::launch
