// Ranks that hang, as the coordinator hears of them from several nodes.

#include <gtest/gtest.h>

#include "coordinator_harness.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

RankStatus rank_status(int rank, Activity activity, const std::string& what,
                       std::chrono::milliseconds still) {
  RankStatus status;
  status.rank = rank;
  status.process = "node" + std::to_string(rank) + ", pid 7";
  status.beat = HeartbeatRecord{.activity = activity, .what = what, .number = 0, .step = 5};
  status.still = still;
  return status;
}
RankStatus waits(int rank, std::chrono::milliseconds still = 15s) {
  return rank_status(rank, Activity::waiting, "all_reduce", still);
}
RankStatus works(int rank, std::chrono::milliseconds still = 15s) {
  return rank_status(rank, Activity::working, "forward", still);
}

/// Two nodes of one rank each, which report their ranks once a second.
struct StillJob : CoordinatorHarness {
  explicit StillJob(std::chrono::milliseconds timeout = 0s, int count = 2)
      : CoordinatorHarness(options_of(timeout, count)) {
    for (int i = 0; i < count; ++i) coordinator.on_join(i, info("node", options_of(timeout, count)), now);
  }
  static CoordinatorOptions options_of(std::chrono::milliseconds timeout, int count) {
    CoordinatorOptions options;
    options.min_nodes = options.max_nodes = count;
    options.heartbeat_timeout = timeout;
    options.keep_alive_timeout = 24h;
    return options;
  }
  /// The node reports these ranks now, and from now on: those that are still stay so.
  void report(NodeId node, const std::vector<RankStatus>& statuses, int round = 1) {
    reports[node] = {round, statuses};
    receive(node, reports[node]);
  }
  void pass_seconds(int count) {
    for (int i = 0; i < count; ++i) {
      pass(1s);
      for (auto& [node, report] : reports) {
        for (auto& rank : report.ranks) rank.still += rank.still > 0s ? 1s : 0s;
        receive(node, report);
      }
    }
  }
  std::vector<HangFound> hangs(NodeId node) const { return got<HangFound>(node); }

  std::map<NodeId, StatusReport> reports;
};

TEST(CoordinatorHangs, WorkingRankIsNamedOnEveryNode) {
  StillJob job;
  job.report(0, {waits(0)});
  job.report(1, {works(1)});
  job.pass_seconds(15);
  EXPECT_TRUE(job.hangs(0).empty()) << "30 s, but the other node's report is a second old";
  job.pass_seconds(1);
  for (NodeId node = 0; node < 2; ++node) {
    ASSERT_EQ(job.hangs(node).size(), 1U);
    const HangFound told = job.hangs(node).front();
    EXPECT_EQ(told.text,
              "rank 1 (node1, pid 7) has made no progress for 30 s: last seen in forward, step 5; "
              "rank 0 has been waiting in all_reduce for 30 s");
    EXPECT_FALSE(told.ends_job);
  }
}

TEST(CoordinatorHangs, NoHangIsReportedBeforeEveryNodeReported) {
  StillJob job(10s, 3);
  job.report(0, {waits(0)});
  job.report(1, {works(1)});
  job.pass_seconds(60);
  EXPECT_TRUE(job.hangs(0).empty());
  job.report(2, {waits(2)});
  job.pass_seconds(1);
  EXPECT_EQ(job.hangs(0).size(), 1U);
}

TEST(CoordinatorHangs, RankWithoutHeartbeatPreventsDetection) {
  StillJob job(10s);
  RankStatus silent;
  silent.rank = 1;
  job.report(0, {waits(0)});
  job.report(1, {silent});
  job.pass_seconds(60);
  EXPECT_TRUE(job.hangs(0).empty());
}

/// The rank may have moved since.
TEST(CoordinatorHangs, OldReportProvesNothingAboutTheTimeSince) {
  StillJob job(20s);
  job.report(0, {waits(0)});
  job.receive(1, StatusReport{1, {works(1)}});
  job.pass_seconds(3600);
  EXPECT_TRUE(job.hangs(0).empty());
}

TEST(CoordinatorHangs, LastReportOfANodeCounts) {
  StillJob job(20s);
  job.report(0, {waits(0)});
  job.report(1, {works(1)});
  job.pass_seconds(4);
  job.report(1, {works(1, 0s)});
  job.pass_seconds(3600);
  EXPECT_TRUE(job.hangs(0).empty()) << "it moves again";
  job.report(1, {works(1, 10s)});
  job.pass_seconds(5);
  EXPECT_TRUE(job.hangs(0).empty());
}

TEST(CoordinatorHangs, NewRoundForgetsReportsOfTheLast) {
  StillJob job(20s);
  job.report(0, {waits(0)});
  job.report(1, {works(1)}, 7);
  job.pass_seconds(60);
  EXPECT_TRUE(job.hangs(0).empty()) << "of no round that runs";
}

TEST(CoordinatorHangs, StuckRankFailsAfterTheHeartbeatTimeout) {
  StillJob job(20s);
  job.report(0, {waits(0)});
  job.report(1, {works(1)});
  job.pass_seconds(10);
  ASSERT_EQ(job.hangs(1).size(), 1U);
  const HangFound told = job.hangs(1).front();
  EXPECT_TRUE(told.ends_job);
  EXPECT_EQ(told.rank, 1);
  EXPECT_EQ(told.stuck, std::vector<int>{1});
  EXPECT_EQ(told.limit, 20s);
}

TEST(CoordinatorHangs, ExitedRanksAreNamedInTheFailureOfAWaitingRank) {
  StillJob job(20s);
  RankStatus gone = works(1, 0s);
  gone.status = 0;
  job.report(1, {gone});
  job.ended(1, 1, true);
  job.reports.erase(1);
  job.report(0, {waits(0)});
  job.pass_seconds(10);
  ASSERT_EQ(job.hangs(0).size(), 1U);
  const HangFound told = job.hangs(0).front();
  EXPECT_EQ(told.rank, 0);
  EXPECT_NE(told.text.find("rank 1 (node1, pid 7) left at step 5"), std::string::npos);
}

TEST(CoordinatorStacks, OfOtherNodesAreSentToTheRequester) {
  StillJob job(0s, 3);
  job.receive(2, StacksRequest{});
  EXPECT_EQ(job.got<CollectStacks>(0).size(), 1U);
  EXPECT_EQ(job.got<CollectStacks>(1).back().requester, 2);
  EXPECT_TRUE(job.got<CollectStacks>(2).empty());
  job.receive(1, Stacks{2, "here\n"});
  EXPECT_EQ(job.words(2).find("here") != std::string::npos, true);
  EXPECT_TRUE(job.got<Report>(0).empty());
  job.receive(1, Stacks{99, "nobody asked\n"});
}

TEST(CoordinatorStacks, AreLeftOutAboveTheLimit) {
  StillJob job;
  job.receive(1, StacksRequest{});
  const std::string much(1 << 19, 'x');
  for (int i = 0; i < 6; ++i) job.receive(0, Stacks{1, much});
  EXPECT_EQ(job.got<Report>(1).size(), 4U);
  EXPECT_NE(job.words(1).find("are left out"), std::string::npos);
  job.receive(1, StacksRequest{});
  job.receive(0, Stacks{1, "again\n"});
  EXPECT_EQ(job.got<Report>(1).size(), 5U);
}

}  // namespace
}  // namespace lockstep::launch
