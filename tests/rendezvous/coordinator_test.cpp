#include <gtest/gtest.h>

#include <csignal>

#include "coordinator_harness.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

CoordinatorOptions nodes(int least, int most, int restarts = 0) {
  CoordinatorOptions options;
  options.run_id = "job";
  options.min_nodes = least;
  options.max_nodes = most;
  options.max_restarts = restarts;
  return options;
}

/// A coordinator whose nodes 0 ... n-1, hosts "a", "b", ..., have joined with two ranks each.
struct Job : CoordinatorHarness {
  Job(const CoordinatorOptions& given, int count) : CoordinatorHarness(given), options(given) {
    for (int i = 0; i < count; ++i) join(i);
  }
  void join(NodeId id) {
    coordinator.on_join(id, info(std::string(1, static_cast<char>('a' + id)), options, 2), now);
  }
  int starts(NodeId id) const { return static_cast<int>(got<Assignment>(id).size()); }
  int stops(NodeId id) const { return static_cast<int>(got<StopRound>(id).size()); }
  Assignment assignment(NodeId id) const { return got<Assignment>(id).back(); }
  /// The exit code that the node was told; -1: the job goes on.
  int exit_code(NodeId id) const {
    const auto messages = got<Finish>(id);
    return messages.empty() ? -1 : messages.back().exit_code;
  }
  CoordinatorOptions options;
};

TEST(Coordinator, RoundStartsOnceAllNodesJoined) {
  Job job(nodes(2, 2), 1);
  EXPECT_EQ(job.starts(0), 0);
  job.join(1);
  ASSERT_EQ(job.starts(0), 1);
  EXPECT_EQ(job.assignment(1).first_rank, 2);
  EXPECT_EQ(job.assignment(1).world_size, 4);
  EXPECT_EQ(job.assignment(1).group_rank, 1);
  EXPECT_EQ(job.rounds, 1);
}

TEST(Coordinator, ElasticJobWaitsForTheLastCallOnlyInTheFirstRound) {
  Job job(nodes(1, 3, 1), 1);
  job.pass(29s);
  EXPECT_EQ(job.starts(0), 0);
  job.pass(1s);
  EXPECT_EQ(job.starts(0), 1);
  job.failed(0, 1, 0);
  job.ended(0, 1, false);
  EXPECT_EQ(job.starts(0), 2);
}

TEST(Coordinator, JobSucceedsOnceAllNodesHave) {
  Job job(nodes(2, 2), 2);
  job.ended(1, 1, true);
  EXPECT_EQ(job.exit_code(0), -1);
  job.ended(0, 1, true);
  EXPECT_EQ(job.exit_code(0), 0);
  EXPECT_EQ(job.exit_code(1), 0);
  EXPECT_FALSE(job.coordinator.finished());
  job.coordinator.on_disconnect(1, "went", job.now);
  EXPECT_TRUE(job.coordinator.finished());
}

TEST(Coordinator, FirstFailureStopsEveryNodeAtOnceAndIsReportedToAll) {
  Job job(nodes(3, 3), 3);
  job.failed(2, 1, 4);
  EXPECT_EQ(job.stops(0), 1);
  EXPECT_EQ(job.stops(1), 1);
  EXPECT_TRUE(job.got<StopRound>(1).back().at_once);
  EXPECT_FALSE(job.got<StopRound>(1).back().stacks_first);
  job.failed(1, 1, 3);
  EXPECT_EQ(job.stops(0), 1);
  for (NodeId id = 0; id < 3; ++id) job.ended(id, 1, false);
  for (NodeId id = 0; id < 3; ++id) {
    EXPECT_EQ(job.exit_code(id), 3);
    EXPECT_NE(job.words(id).find("FAILED: rank 4"), std::string::npos) << job.words(id);
    // One node prints the whole report, however many there are.
    EXPECT_EQ(job.words(id).find("details") != std::string::npos, id == 0) << job.words(id);
    EXPECT_EQ(job.got<Finish>(id).back().error, "e4");
  }
}

TEST(Coordinator, StacksAreShownAfterARankTimedOut) {
  Job job(nodes(2, 2), 2);
  ProcessFailure failure = CoordinatorHarness::failure(2);
  failure.status = kTimeoutExitCode << 8;
  job.receive(1, RankFailed{1, failure});
  for (const NodeId id : {0, 1}) EXPECT_TRUE(job.got<StopRound>(id).back().stacks_first);
}

TEST(Coordinator, RestartsAreCountedOnceForTheWholeJob) {
  Job job(nodes(2, 2, 2), 2);
  for (int round = 1; round <= 3; ++round) {
    EXPECT_EQ(job.starts(0), round);
    EXPECT_EQ(job.assignment(0).restart_count, round - 1);
    EXPECT_EQ(job.assignment(1).restart_count, round - 1);
    EXPECT_EQ(job.rounds, round);
    job.failed(round % 2, round, round % 2);
    job.ended(0, round, false);
    job.ended(1, round, false);
  }
  EXPECT_EQ(job.starts(0), 3);
  EXPECT_EQ(job.exit_code(0), 3);
}

TEST(Coordinator, RestartPauseDoesNotShortenTheJoinTimeout) {
  CoordinatorOptions options = nodes(2, 2, 1);
  options.restart_backoff = 30s;
  options.join_timeout = 10s;
  Job job(options, 2);
  job.failed(1, 1, 2);
  job.ended(1, 1, false);
  job.ended(0, 1, false);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  for (int i = 0; i < 39; ++i) job.pass(1s);
  EXPECT_EQ(job.exit_code(0), -1) << job.words(0);
  EXPECT_EQ(job.coordinator.deadline(), job.now + 1s);
  job.pass(1s);
  EXPECT_EQ(job.exit_code(0), 1);
}

TEST(Coordinator, NextRoundWaitsForAllProcessesOfTheLast) {
  Job job(nodes(2, 2, 1), 2);
  job.failed(0, 1, 0);
  job.ended(0, 1, false);
  EXPECT_EQ(job.starts(0), 1);
  job.ended(1, 1, false);
  EXPECT_EQ(job.starts(0), 2);
}

TEST(Coordinator, MessagesOfAnEarlierRoundAreIgnored) {
  Job job(nodes(1, 1, 5), 1);
  job.failed(0, 1, 0);
  job.ended(0, 1, false);
  job.failed(0, 1, 0);
  job.ended(0, 1, true);
  EXPECT_EQ(job.starts(0), 2);
  EXPECT_EQ(job.exit_code(0), -1);
}

TEST(Coordinator, JoiningNodeStartsANewRoundWithoutUsingARestart) {
  Job job(nodes(1, 2), 1);
  job.pass(30s);
  job.join(1);
  EXPECT_EQ(job.stops(0), 1);
  job.failed(0, 1, 0);
  job.ended(0, 1, false);
  ASSERT_EQ(job.starts(0), 2);
  EXPECT_EQ(job.assignment(0).restart_count, 0);
  EXPECT_EQ(job.assignment(0).world_size, 4);
  EXPECT_EQ(job.assignment(1).first_rank, 2);
}

TEST(Coordinator, SurplusNodeBecomesSpareAndReplacesLostNode) {
  Job job(nodes(2, 2), 3);
  EXPECT_EQ(job.starts(2), 0);
  EXPECT_NE(job.words(2).find("spare"), std::string::npos);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  EXPECT_EQ(job.stops(0), 1);
  job.ended(0, 1, false);
  ASSERT_EQ(job.starts(2), 1);
  EXPECT_EQ(job.assignment(2).group_rank, 1);
  EXPECT_EQ(job.assignment(0).restart_count, 0);
}

TEST(Coordinator, LostNodeShrinksAnElasticJob) {
  Job job(nodes(1, 3), 3);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  job.ended(2, 1, false);
  ASSERT_EQ(job.starts(0), 2);
  EXPECT_EQ(job.assignment(0).world_size, 4);
  EXPECT_EQ(job.assignment(2).first_rank, 2);
  EXPECT_EQ(job.assignment(2).group_rank, 1);
  EXPECT_NE(job.words(2).find("node 1 (host b"), std::string::npos) << job.words(2);
}

TEST(Coordinator, LostNodeEndsAFixedJobAndIsNamed) {
  Job job(nodes(2, 2), 2);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  EXPECT_EQ(job.exit_code(0), 1);
  EXPECT_NE(job.words(0).find("FAILED: node 1 (host b"), std::string::npos) << job.words(0);
}

TEST(Coordinator, LostNodeEndsAJobWithTorchrunNodesThoughRestartsAreLeft) {
  Job job(nodes(2, 3, 1), 1);
  job.join(1);
  NodeInfo torchrun = job.info("c", job.options, 2);
  torchrun.is_torchrun = true;
  job.coordinator.on_join(2, torchrun, job.now);
  ASSERT_EQ(job.starts(0), 1);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  job.ended(2, 1, false);
  EXPECT_EQ(job.starts(0), 1);
  EXPECT_EQ(job.exit_code(0), 1);
  EXPECT_NE(job.words(0).find("FAILED: node 1 (host b"), std::string::npos) << job.words(0);
}

TEST(Coordinator, LostNodeOfAFixedJobIsReplacedWhileRestartsAreLeft) {
  Job job(nodes(2, 2, 1), 2);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  EXPECT_EQ(job.exit_code(0), -1);
  job.join(7);
  ASSERT_EQ(job.starts(7), 1);
  EXPECT_EQ(job.assignment(7).restart_count, 1);
}

TEST(Coordinator, RanksThatFailBecauseOfALostNodeAreNotTheCause) {
  Job job(nodes(2, 2), 2);
  job.failed(0, 1, 0, false);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  EXPECT_NE(job.words(0).find("FAILED: node 1"), std::string::npos) << job.words(0);
}

TEST(Coordinator, RankThatFailedBeforeItsNodeWasLostIsTheCause) {
  Job job(nodes(2, 2), 2);
  job.failed(1, 1, 2);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  job.ended(0, 1, false);
  EXPECT_NE(job.words(0).find("FAILED: rank 2"), std::string::npos) << job.words(0);
}

TEST(Coordinator, NodeWhoseRanksEndedMayDisconnect) {
  Job job(nodes(2, 2), 2);
  job.ended(1, 1, true);
  job.coordinator.on_disconnect(1, "closed its connection", job.now);
  EXPECT_EQ(job.stops(0), 0);
  job.ended(0, 1, true);
  EXPECT_EQ(job.exit_code(0), 0);
}

TEST(Coordinator, SilentNodeIsLostAfterTheKeepAliveTimeout) {
  Job job(nodes(2, 2), 2);
  job.pass(14s);
  job.receive(1, Ping{});
  EXPECT_EQ(job.got<Pong>(1).size(), 1u);
  job.pass(14s);
  EXPECT_EQ(job.stops(0), 0);
  EXPECT_EQ(job.coordinator.deadline(), job.now + 1s);
  job.pass(1s);
  EXPECT_EQ(job.stops(0), 1);
  EXPECT_EQ(job.dismissed, std::vector<NodeId>{1});
}

TEST(Coordinator, DrainingCoordinatorEndsTheJobOnAllNodes) {
  Job job(nodes(1, 2), 2);
  job.receive(0, Draining{SIGINT});
  EXPECT_EQ(job.got<StopRound>(1).back().signal, SIGINT);
  job.ended(0, 1, false);
  job.ended(1, 1, false);
  EXPECT_EQ(job.exit_code(1), 128 + SIGINT);
}

TEST(Coordinator, DrainingNodeShrinksAnElasticJobAndEndsAFixedOne) {
  Job elastic(nodes(1, 2), 2);
  elastic.receive(1, Draining{SIGTERM});
  elastic.ended(1, 1, false);
  elastic.ended(0, 1, false);
  EXPECT_EQ(elastic.starts(0), 2);
  EXPECT_EQ(elastic.starts(1), 1);
  EXPECT_EQ(elastic.assignment(0).world_size, 2);
  EXPECT_EQ(elastic.exit_code(1), 128 + SIGTERM);
  EXPECT_EQ(elastic.exit_code(0), -1);

  Job fixed(nodes(2, 2, 3), 2);
  fixed.receive(1, Draining{SIGTERM});
  fixed.ended(1, 1, false);
  fixed.ended(0, 1, false);
  EXPECT_EQ(fixed.exit_code(0), 128 + SIGTERM);
}

TEST(Coordinator, SecondSignalIsForwardedWhileTheJobStops) {
  Job job(nodes(2, 2, 1), 2);
  job.failed(1, 1, 2);
  job.receive(0, Draining{SIGTERM});
  EXPECT_EQ(job.stops(1), 2);
  job.ended(0, 1, false);
  job.ended(1, 1, false);
  EXPECT_EQ(job.starts(0), 1);
  EXPECT_EQ(job.exit_code(0), 128 + SIGTERM);
}

TEST(Coordinator, PreemptedRanksHaveTimeToSaveAndAreNotRestarted) {
  Job job(nodes(2, 2, 5), 2);
  ProcessFailure failure = CoordinatorHarness::failure(0);
  failure.status = 85 << 8;
  job.receive(0, RoundEnded{.round = 1, .preempted = true, .failures = {failure}});
  EXPECT_EQ(job.stops(1), 0);
  job.ended(1, 1, true);
  EXPECT_EQ(job.exit_code(1), 85);
  EXPECT_TRUE(job.got<Report>(1).empty());
}

TEST(Coordinator, EndedJobThatSavedItsStateIsPreempted) {
  Job job(nodes(2, 2), 2);
  job.receive(0, Draining{SIGTERM});
  EXPECT_FALSE(job.got<StopRound>(1).back().at_once);
  for (NodeId id = 0; id < 2; ++id) job.receive(id, RoundEnded{.round = 1, .preempted = true});
  EXPECT_EQ(job.exit_code(0), 85);
}

/// A thousand nodes are told short texts: one of each of them would be a message of its own to each.
TEST(Coordinator, ManyNodesAreNotListedToAllOfThem) {
  const int count = 1000;
  CoordinatorOptions options = nodes(count, count);
  CoordinatorHarness job(options);
  const auto join = [&](int i) {
    NodeInfo info = job.info("host" + std::to_string(i), options);
    info.node_rank = i;
    job.coordinator.on_join(i, info, job.now);
  };
  for (int i = 0; i < 40; ++i) join(i);
  job.pass(10s);
  EXPECT_NE(job.words(7).find("host14, (24 more), host39); missing: node 40, 41"), std::string::npos)
      << job.words(7);
  EXPECT_NE(job.words(7).find("54, (944 more), 999"), std::string::npos) << job.words(7);
  for (int i = 40; i < count; ++i) join(i);
  ASSERT_EQ(job.got<Assignment>(count - 1).size(), 1U);
  EXPECT_EQ(job.got<Assignment>(count - 1).front().group_rank, count - 1);
  EXPECT_NE(job.words(999).find("1000 nodes: node 0 = host0 (rank 0), "), std::string::npos);
  EXPECT_NE(job.words(999).find("(984 more), node 999 = host999 (rank 999)"), std::string::npos);
  EXPECT_LT(job.words(7).size(), 3000U);
  // After one has left, the others are still found by their ids.
  job.coordinator.on_disconnect(500, "closed its connection", job.now);
  EXPECT_NE(job.words(999).find("node 500 (host host500, process 1) closed its connection"),
            std::string::npos);
  for (int i = 0; i < count; ++i) {
    if (i != 500) job.ended(i, 1, false);
  }
  EXPECT_EQ(job.got<Finish>(999).size(), 1U);
}

TEST(Coordinator, MissingNodesAreNamedUntilTheJoinTimeout) {
  CoordinatorOptions options = nodes(3, 3);
  CoordinatorHarness job(options);
  NodeInfo first = job.info("a", options);
  first.node_rank = 0;
  job.coordinator.on_join(0, first, job.now);
  job.pass(10s);
  EXPECT_NE(job.words(0).find("1 node of 3 joined (a); missing: node 1, 2"), std::string::npos)
      << job.words(0);
  job.pass(590s);
  EXPECT_EQ(job.got<Finish>(0).back().exit_code, 1);
  EXPECT_NE(job.words(0).find("join_timeout"), std::string::npos);
}

TEST(Coordinator, WrongWallClockIsReportedOnce) {
  const auto words = [](std::optional<std::chrono::milliseconds> ahead) {
    Job job(nodes(2, 2), 1);
    NodeInfo second = job.info("b", job.options);
    second.clock_ahead = ahead;
    job.coordinator.on_join(1, second, job.now);
    EXPECT_EQ(job.starts(0), 1) << "no effect";
    const std::string text = job.words(0);
    EXPECT_EQ(text, job.words(1));
    const auto at = text.find("the wall clock");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(
      words(60s),
      "the wall clock of a node (host b, process 1) is 60 s ahead of the coordinator's: so are the times in "
      "its logs; nothing else depends on it");
  EXPECT_NE(words(-6s).find(" is 6 s behind the coordinator's"), std::string::npos);
  EXPECT_EQ(words(5s), "");
  EXPECT_EQ(words(std::nullopt), "");
}

TEST(Coordinator, NodesThatContradictTheJobAreRefused) {
  const CoordinatorOptions options = nodes(2, 2);
  const auto refused = [&](const auto& change) {
    CoordinatorHarness job(options);
    NodeInfo first = job.info("a", options);
    first.node_rank = 0;
    job.coordinator.on_join(0, first, job.now);
    NodeInfo second = job.info("b", options);
    change(second);
    job.coordinator.on_join(1, second, job.now);
    EXPECT_EQ(job.dismissed, std::vector<NodeId>{1});
    EXPECT_TRUE(job.got<Assignment>(0).empty());
    return job.words(1);
  };
  EXPECT_NE(refused([](NodeInfo& n) { n.run_id = "other"; }).find("--rdzv-id is 'other'"), std::string::npos);
  EXPECT_NE(refused([](NodeInfo& n) { n.max_nodes = 3; }).find("--nnodes is 2:3"), std::string::npos);
  EXPECT_NE(refused([](NodeInfo& n) { n.node_rank = 0; }).find("taken by host a, process 1"),
            std::string::npos);
  EXPECT_NE(refused([](NodeInfo& n) { n.node_rank = 2; }).find("numbered from 0"), std::string::npos);
  EXPECT_NE(refused([](NodeInfo& n) { n.version = 99; }).find("version 99"), std::string::npos);
}

TEST(Coordinator, AnotherProgramIsRefusedAndOtherArgumentsAreReported) {
  const CoordinatorOptions options = nodes(1, 3);
  CoordinatorHarness job(options);
  NodeInfo first = job.info("a", options);
  first.program = "train.py";
  first.arguments = "--lr 1";
  job.coordinator.on_join(0, first, job.now);
  NodeInfo other = first;
  other.host = "b";
  other.program = "evaluate.py";
  job.coordinator.on_join(1, other, job.now);
  EXPECT_NE(job.words(1).find("run 'evaluate.py', those of the job here (host a, process 1) run 'train.py'"),
            std::string::npos)
      << job.words(1);
  EXPECT_NE(job.words(0).find("refused a launcher from b"), std::string::npos) << job.words(0);
  other.role = "evaluator";
  job.coordinator.on_join(2, other, job.now);
  NodeInfo third = first;
  third.host = "c";
  third.arguments = "--lr 2";
  job.coordinator.on_join(3, third, job.now);
  EXPECT_EQ(job.dismissed, std::vector<NodeId>{1});
  EXPECT_NE(job.words(0).find("other arguments: '--lr 2'; host a with '--lr 1'"), std::string::npos)
      << job.words(0);
}

TEST(Coordinator, NodeThatNeverRanReportsItAndFails) {
  Job job(nodes(2, 2), 3);
  job.ended(0, 1, true);
  job.ended(1, 1, true);
  EXPECT_EQ(job.exit_code(0), 0);
  EXPECT_EQ(job.exit_code(1), 0);
  EXPECT_EQ(job.exit_code(2), 1);
  EXPECT_NE(job.words(2).find("no rank of this node ran"), std::string::npos) << job.words(2);
}

TEST(Coordinator, LostNodeUsesTheRestartPolicyAndItsPause) {
  CoordinatorOptions options = nodes(2, 2, 2);
  options.restart_backoff = 4s;
  Job job(options, 2);
  for (NodeId id = 1; id <= 3; ++id) {
    job.pass(1s);
    job.coordinator.on_disconnect(id, "closed its connection", job.now);
    job.ended(0, static_cast<int>(id), false);
    if (id == 3) break;
    job.join(id + 1);
    EXPECT_EQ(job.starts(0), static_cast<int>(id)) << "it starts after the pause";
    job.pass(id == 1 ? 4s : 8s);
    EXPECT_EQ(job.starts(0), static_cast<int>(id) + 1);
    EXPECT_EQ(job.assignment(0).restart_count, static_cast<int>(id));
  }
  EXPECT_EQ(job.exit_code(0), 1) << "no restart is left";
  EXPECT_NE(job.words(0).find("restart 2 of 2, after a pause of 8 s"), std::string::npos) << job.words(0);
}

TEST(Coordinator, RefusedNodesAreReportedAtOnceAndAtTheTimeout) {
  CoordinatorOptions options = nodes(2, 2);
  options.how_to_join = "This node waits at a:29400; run on the others: lockstep run";
  options.join_timeout_option = "--rdzv-conf timeout";
  Job job(options, 1);
  for (int i = 0; i < 3; ++i) job.coordinator.on_refused("a launcher from 10.0.0.2", "another secret");
  EXPECT_EQ(job.words(0), "refused a launcher from 10.0.0.2: another secret\n");
  job.pass(600s);
  const std::string report = job.got<Report>(0).back().text;
  for (const char* part :
       {"1 node of 2 joined (a). This node waits at a:29400; run on the others: lockstep run",
        "(--rdzv-conf timeout)", "refused a launcher from 10.0.0.2: another secret"})
    EXPECT_NE(report.find(part), std::string::npos) << report;
}

TEST(Coordinator, AddressOfRankZerosStoreIsSentToAll) {
  CoordinatorOptions options = nodes(2, 2);
  CoordinatorHarness job(options);
  for (const NodeId id : {0, 1}) {
    NodeInfo node = job.info(id == 0 ? "a" : "b", options);
    node.own_store = net::HostPort{node.host, 4000};
    job.coordinator.on_join(id, node, job.now);
  }
  for (const NodeId id : {0, 1}) EXPECT_EQ(job.got<Assignment>(id).back().own_store->text(), "a:4000");
}

TEST(Coordinator, NodesThatDoNotLeaveAreDismissed) {
  Job job(nodes(2, 2), 2);
  job.ended(0, 1, true);
  job.ended(1, 1, true);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(job.coordinator.finished());
    job.receive(1, Ping{});
    job.pass(8s);
  }
  EXPECT_TRUE(job.coordinator.finished());
}

}  // namespace
}  // namespace lockstep::launch
