// Groups over two hosts: shared memory in each, Gloo between them.

#include <csignal>

#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

class Spanning : public Hosts {
 protected:
  /// Ranks of one job, `ranks[h]` of them on host h.
  void start_job(const std::string& what, const std::vector<int>& ranks) {
    make_hosts(static_cast<int>(ranks.size()));
    int world_size = 0, rank = 0;
    for (const int count : ranks) world_size += count;
    for (std::size_t host = 0; host < ranks.size(); ++host) {
      for (int local = 0; local < ranks[host]; ++local) {
        const Environment variables{{"RANK", std::to_string(rank++)},
                                    {"WORLD_SIZE", std::to_string(world_size)},
                                    {"LOCAL_RANK", std::to_string(local)},
                                    {"LOCAL_WORLD_SIZE", std::to_string(ranks[host])},
                                    {"GROUP_RANK", std::to_string(host)},
                                    {"GROUP_WORLD_SIZE", std::to_string(ranks.size())},
                                    {"MASTER_ADDR", Network::address(0)},
                                    {"MASTER_PORT", "29500"},
                                    {"OMP_NUM_THREADS", "1"}};
        ranks_.push_back(std::make_unique<LauncherProcess>(Words{what, folder().path()}, variables,
                                                           network().enter(static_cast<int>(host)),
                                                           LOCKSTEP_SPANNING_RANK));
      }
    }
  }

  /// All ranks find every result right, with tensors carried by that.
  void expect_success(const std::string& backend) {
    for (const auto& rank : ranks_) {
      const Finished end = rank->wait();
      EXPECT_EQ(end.status, 0) << end.err;
      EXPECT_TRUE(has(end.out, "done: " + backend));
    }
  }

  /// Waits until the ranks are at work; the pid of each.
  std::vector<pid_t> await_ranks() const {
    std::vector<pid_t> pids;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      pids.push_back(await_number(folder().file(std::to_string(r))));
    return pids;
  }

  std::vector<std::unique_ptr<LauncherProcess>> ranks_;
};

TEST_F(Spanning, EverythingIsAsOverGloo) {
  start_job("all", {2, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, EverythingIsAsOverGlooOnUnequalHosts) {
  start_job("all", {2, 1});
  expect_success("shm+gloo");
}

TEST_F(Spanning, PartsOfAGroupFindTheirOwnWay) {
  start_job("parts", {3, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, TrainingIsAsOverGloo) {
  start_job("training", {2, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, OneRankAHostLeavesItToGloo) {
  start_job("training", {1, 1});
  expect_success("gloo");
}

/// Killed without a word: its own host and the other both say who it was.
TEST_F(Spanning, AKilledRankIsNamedOnBothHosts) {
  start_job("until_the_end", {2, 2});
  const auto pids = await_ranks();
  ASSERT_EQ(kill(pids[3], SIGKILL), 0);
  for (const int rank : {0, 1, 2}) {
    const Finished end = ranks_[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "rank 3 on node1 (pid"));
    EXPECT_TRUE(has(end.err, "has ended"));
  }
}

/// Nobody of its host is left to tell.
TEST_F(Spanning, AKilledHostIsNamed) {
  start_job("until_the_end", {2, 1});
  const auto pids = await_ranks();
  ASSERT_EQ(kill(pids[2], SIGKILL), 0);
  for (const int rank : {0, 1}) {
    const Finished end = ranks_[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "rank 2 on node1"));
  }
}

TEST_F(Spanning, ACutLinkEndsTheWait) {
  start_job("until_the_end", {2, 2});
  await_ranks();
  network().cut(1);
  for (const auto& rank : ranks_) {
    const Finished end = rank->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "all_reduce"));
    EXPECT_TRUE(has(end.err, "imed out"));
    EXPECT_TRUE(has(end.err, "do not answer"));
  }
}

}  // namespace
}  // namespace lockstep::launch
