// Groups over two hosts: shared memory in each, Gloo between them.

#include <csignal>
#include <regex>

#include "hosts_test.hpp"
#include "lockstep/core/runtime/program.hpp"

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

TEST_F(Spanning, AllResultsEqualGloos) {
  start_job("all", {2, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, AllResultsEqualGloosOnUnequalHosts) {
  start_job("all", {2, 1});
  expect_success("shm+gloo");
}

TEST_F(Spanning, SubgroupsChooseTheirOwnTransport) {
  start_job("parts", {3, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, TrainingEqualsGloos) {
  start_job("training", {2, 2});
  expect_success("shm+gloo");
}

TEST_F(Spanning, OneRankPerHostUsesGloo) {
  start_job("training", {1, 1});
  expect_success("gloo");
}

/// What differs, and a part of the words for both sides.
struct Sides {
  const char* what;
  const char* one;
  const char* another;
};

class HostsThatDisagree : public Spanning, public ::testing::WithParamInterface<Sides> {};
INSTANTIATE_TEST_SUITE_P(
    On, HostsThatDisagree,
    ::testing::Values(
        Sides{"size", "#3 (float32, 1000 elements, sum)", "#3 (float32, 2000 elements, sum)"},
        // Of which one goes by more lanes than the other.
        Sides{"large_size", "#3 (float32, 1000 elements, sum)", "#3 (float32, 1000000 elements, sum)"},
        Sides{"dtype", "#3 (float32, 4 elements, sum)", "#3 (int32, 4 elements, sum)"},
        Sides{"reduction", "#3 (float32, 4 elements, sum)", "#3 (float32, 4 elements, max)"},
        Sides{"root", "#3 (float32, 4 elements, root 0)", "#3 (float32, 4 elements, root 1)"},
        // By Gloo between all ranks, which the others are not at.
        Sides{"gather", "all_reduce #3 (float32, 4 elements, sum)",
              "gather #3 (float32, 4 elements, root 0)"},
        Sides{"gathered", "gather #3 (float32, 3 elements, root 0)",
              "gather #3 (float32, 4 elements, root 0)"},
        Sides{"order_of_starts", "#8 (float32, 200 elements, sum)", "#8 (float32, 300 elements, sum)"}),
    [](const auto& sides) { return std::string(sides.param.what); });

/// The ranks of each host agree with each other, and all have called both things before.
TEST_P(HostsThatDisagree, AreNamedByEveryRank) {
  start_job(std::string("disagree:") + GetParam().what, {2, 2});
  for (const auto& rank : ranks_) {
    const Finished end = rank->wait();
    EXPECT_EQ(end.status, 1);
    for (const char* words : {"ranks called different collectives", GetParam().one, GetParam().another})
      EXPECT_TRUE(has(end.err, words));
    EXPECT_FALSE(has(end.err, "it took long"));
  }
}

/// Whether the text says that this rank has ended, or does not answer, alone or among others.
bool names(int rank, const std::string& text) {
  const std::string number = std::to_string(rank);
  return std::regex_search(
      text, std::regex("rank " + number + " on node[01] .pid [0-9]+. has ended|rank " + number +
                       " does not answer|ranks [0-9, ]*\\b" + number + "\\b[0-9, ]* do not answer"));
}

class AKilledRank : public Spanning, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRank,
                         ::testing::Values("all_reduce", "small_all_reduce", "all_reduce_async", "broadcast",
                                           "reduce", "all_gather", "reduce_scatter"),
                         [](const auto& test) { return std::string(test.param); });

/// Killed without a word: its own host and the other both say who it was.
TEST_P(AKilledRank, IsNamedOnBothHosts) {
  start_job(GetParam(), {2, 2});
  const auto pids = await_ranks();
  ASSERT_EQ(kill(pids[3], SIGKILL), 0);
  for (const int rank : {0, 1, 2}) {
    const Finished end = ranks_[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "rank 3 on node1 (pid"));
    EXPECT_TRUE(has(end.err, "has ended"));
  }
}

/// What Gloo carries between all ranks, and who is killed in it.
using Place = std::pair<const char*, int>;

/// Who is killed takes its connections along; those who find them closed ask around, and may find that the
/// one who found out first has ended as well.
class AKilledRankOverGloo : public Spanning, public ::testing::WithParamInterface<Place> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRankOverGloo,
                         ::testing::Values(Place{"gather", 3}, Place{"scatter", 3}, Place{"all_to_all", 3},
                                           Place{"send_and_recv", 1}),
                         [](const auto& test) { return std::string(test.param.first); });

TEST_P(AKilledRankOverGloo, IsNamedOnBothHosts) {
  const auto [what, killed] = GetParam();
  start_job(what, {2, 2});
  const auto pids = await_ranks();
  ASSERT_EQ(kill(pids[static_cast<std::size_t>(killed)], SIGKILL), 0);
  for (const int rank : {0, 1, 2, 3}) {
    if (rank == killed) continue;
    const Finished end = ranks_[static_cast<std::size_t>(rank)]->wait();
    // One without a connection to it, in a scatter say, may come to its timeout before the others' end.
    EXPECT_TRUE(end.status == 1 || end.status == kTimeoutExitCode) << end.status;
    EXPECT_TRUE(names(killed, end.err)) << end.err;
  }
}

/// Nobody of its host is left to tell.
TEST_F(Spanning, KilledHostIsNamed) {
  start_job("all_reduce", {2, 1});
  const auto pids = await_ranks();
  ASSERT_EQ(kill(pids[2], SIGKILL), 0);
  for (const int rank : {0, 1}) {
    const Finished end = ranks_[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(has(end.err, "rank 2 on node1"));
  }
}

TEST_F(Spanning, CutLinkEndsTheWait) {
  start_job("all_reduce", {2, 2});
  await_ranks();
  network().cut(1);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Finished end = ranks_[rank]->wait();
    EXPECT_EQ(end.status, kTimeoutExitCode);
    EXPECT_TRUE(has(end.err, "all_reduce"));
    EXPECT_TRUE(has(end.err, "imed out"));
    // Those who are cut off from the store know of nobody, and say so.
    EXPECT_TRUE(has(end.err, rank < 2 ? "ranks 2, 3 do not answer: stopped, or gone"
                                      : "do not answer, and neither does the job's store"));
  }
}

}  // namespace
}  // namespace lockstep::launch
