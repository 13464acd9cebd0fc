// A rank of a running round is lost, and replaced while the others go on.

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>

#include "coordinator_harness.hpp"
#include "core/elastic/recovery_messages.hpp"

namespace lockstep::launch {
namespace {

using elastic::RankProcess;
using elastic::RankReport;
using Kind = elastic::HeldState::Kind;

CoordinatorOptions options_of(int recoveries, int restarts = 0) {
  CoordinatorOptions options;
  options.max_restarts = restarts;
  options.recovery.max_recoveries = recoveries;
  return options;
}

class RecoveryHarness : public CoordinatorHarness {
 public:
  using CoordinatorHarness::CoordinatorHarness;
  void watch(const std::string& prefix) override { watched = prefix; }
  void write(const std::string& key, const std::string& value) override { keys[key] = value; }

  void report(const RankReport& report) { coordinator.on_rank_report(elastic::text_of(report), now); }
  void park(RankProcess process, elastic::Generation generation, std::optional<std::uint64_t> step) {
    elastic::HeldState held;
    if (step) held = {.kind = Kind::clean, .step = *step};
    report({.what = RankReport::What::parked, .process = process, .generation = generation, .held = held});
  }
  void rank_ends(RankProcess process, int status, NodeId node = 0) {
    ProcessFailure failure;
    failure.rank = process.rank;
    failure.status = status;
    receive(node, RankEnded{coordinator_round(), process.process, failure});
  }
  std::string key(const std::string& name) const {
    const auto found = keys.find("lockstep/0/" + name);
    return found == keys.end() ? "" : found->second;
  }
  int coordinator_round() const { return rounds; }

  std::string watched;
  std::map<std::string, std::string> keys;
};

/// A job of one node with two ranks.
class TwoRanks : public RecoveryHarness {
 public:
  explicit TwoRanks(CoordinatorOptions options, bool begin = true) : RecoveryHarness(options) {
    coordinator.on_join(0, info("a", options, 2), now);
    if (!begin) return;
    for (const int rank : {0, 1}) report({.what = RankReport::What::begun, .process = {rank}});
  }
};

/// A job of two nodes, 0 and 7: ranks 0 and 1, and ranks 2 and 3.
class TwoNodes : public RecoveryHarness {
 public:
  explicit TwoNodes(CoordinatorOptions options) : RecoveryHarness(over_two(options)) {
    join(0);
    join(7);
    for (const int rank : {0, 1, 2, 3}) report({.what = RankReport::What::begun, .process = {rank}});
  }
  void join(NodeId id, int ranks = 2) {
    coordinator.on_join(id, info("host" + std::to_string(id), over_two({}), ranks), now);
  }
  static CoordinatorOptions over_two(CoordinatorOptions options) {
    options.min_nodes = options.max_nodes = 2;
    return options;
  }
};

TEST(CoordinatorRecovery, ReplacesTheLostRankAndPublishesThePlan) {
  TwoRanks job(options_of(2));
  EXPECT_EQ(job.watched, "lockstep/0/elastic/report/");
  job.rank_ends({1, 0}, SIGKILL);
  EXPECT_TRUE(job.got<StopRound>(0).empty());
  ASSERT_EQ(job.got<ReplaceRank>(0).size(), 1U);
  const ReplaceRank replace = job.got<ReplaceRank>(0).back();
  EXPECT_EQ(replace.rank, 1);
  EXPECT_EQ(replace.process, 1);
  EXPECT_EQ(replace.replaces, "1:2");
  EXPECT_EQ(job.key(elastic::revoked_key(1)), "rank 1 was killed by SIGKILL (Killed)");
  EXPECT_EQ(job.key(elastic::wake_key(1, 0)), "1");
  EXPECT_EQ(job.key(elastic::end_key(1)), elastic::kMustHelp);
  EXPECT_EQ(job.key(elastic::decision_key(2)), "");

  job.park({0, 0}, 2, 7);
  job.park({1, 1}, 2, std::nullopt);
  const auto decision = elastic::decision_from(job.key(elastic::decision_key(2)));
  ASSERT_TRUE(decision.plan.has_value());
  EXPECT_EQ(decision.plan->source, 0);
  EXPECT_EQ(decision.plan->receivers, std::vector<int>{1});
  EXPECT_EQ(decision.plan->step, 7U);
  EXPECT_EQ(decision.plan->members, (std::vector<RankProcess>{{0, 0}, {1, 1}}));

  for (const RankProcess process : {RankProcess{0, 0}, RankProcess{1, 1}})
    job.report({.what = RankReport::What::finished, .process = process, .generation = 2});
  EXPECT_EQ(job.key(elastic::end_key(2)), elastic::kMayLeave);
  job.rank_ends({0, 0}, 0);
  job.rank_ends({1, 1}, 0);
  job.ended(0, 1, true);
  ASSERT_FALSE(job.got<Finish>(0).empty());
  EXPECT_EQ(job.got<Finish>(0).back().exit_code, 0);
}

CoordinatorOptions options_with_spares() {
  CoordinatorOptions options = options_of(5);
  options.recovery.spares = 2;
  return options;
}

TEST(CoordinatorRecovery, ASpareIsStartedWhenAllTrainAndCalledWhenItsRankIsLost) {
  TwoRanks job(options_with_spares());
  ASSERT_EQ(job.got<ReplaceRank>(0).size(), 2U);
  for (const auto& spare : job.got<ReplaceRank>(0)) {
    EXPECT_TRUE(spare.is_spare);
    EXPECT_EQ(spare.replaces, "1:spare");
  }
  job.rank_ends({1, 0}, SIGKILL);
  ASSERT_EQ(job.got<ReplaceRank>(0).size(), 3U);
  EXPECT_FALSE(job.got<ReplaceRank>(0).back().is_spare);
  EXPECT_EQ(job.got<ReplaceRank>(0).back().process, 1);
  EXPECT_EQ(job.key(elastic::call_key({1, 1})), "2");
  EXPECT_EQ(job.key(elastic::call_key({0, 1})), "");
  job.park({0, 0}, 2, 7);
  job.park({1, 1}, 2, std::nullopt);
  EXPECT_TRUE(elastic::decision_from(job.key(elastic::decision_key(2))).plan.has_value());
  // The next one.
  ASSERT_EQ(job.got<ReplaceRank>(0).size(), 4U);
  EXPECT_TRUE(job.got<ReplaceRank>(0).back().is_spare);
  EXPECT_EQ(job.got<ReplaceRank>(0).back().process, 2);
}

TEST(CoordinatorRecovery, ASpareThatEndsIsNoFailure) {
  TwoRanks job(options_with_spares());
  ProcessFailure failure;
  failure.rank = 1;
  failure.status = 1 << 8;
  failure.message = "no such file\nmore";
  job.receive(0, RankEnded{job.coordinator_round(), 1, failure, true});
  EXPECT_TRUE(job.got<StopRound>(0).empty());
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 3U);
  EXPECT_NE(job.words(0).find("the spare rank 1 (process 2) exited with code 1: no such file"),
            std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, AnotherProgramInASpareIsNamedAndEndsTheReplacementOfRanks) {
  TwoRanks job(options_with_spares(), false);
  for (const int rank : {0, 1}) {
    job.report({.what = RankReport::What::begun,
                .process = {rank},
                .program = R"({"arguments":["a","b"],"files":{"/a":"inode 1","/b":"inode 2"}})"});
  }
  job.report({.what = RankReport::What::ready,
              .process = {0, 1},
              .generation = 0,
              .program = R"({"arguments":["a","b"],"files":{"/a":"inode 1","/c":"inode 3"}})"});
  EXPECT_EQ(job.words(0).find("is not the program"), std::string::npos) << job.words(0);
  job.report({.what = RankReport::What::ready,
              .process = {1, 1},
              .generation = 0,
              .program = R"({"arguments":["a","b"],"files":{"/a":"inode 1","/b":"inode 4"}})"});
  EXPECT_NE(job.words(0).find("rank 1 (process 2) is not the program that the rank began with: files /b: "
                              "\"inode 2\" before, \"inode 4\" now"),
            std::string::npos)
      << job.words(0);
  EXPECT_EQ(job.got<KillRank>(0).size(), 2U);
  job.rank_ends({1, 0}, SIGKILL);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
}

RankStatus still(int rank, Activity activity, std::chrono::seconds time) {
  RankStatus status;
  status.rank = rank;
  status.process = "pid 1";
  status.beat = HeartbeatRecord{};
  status.beat->activity = activity;
  status.still = time;
  return status;
}

/// A rank that is stopped in a checkpoint holds the others up without any time limit of theirs.
TEST(CoordinatorRecovery, ARankThatHangsIsKilledInsteadOfTheJob) {
  CoordinatorOptions options = options_of(5);
  options.heartbeat_timeout = std::chrono::seconds(20);
  TwoRanks job(options);
  for (int second = 0; second < 3; ++second) {
    job.pass(std::chrono::seconds(1));
    const std::chrono::seconds time(25 + second);
    job.receive(0, StatusReport{job.coordinator_round(),
                                {still(0, Activity::working, time), still(1, Activity::waiting, time)}});
  }
  ASSERT_EQ(job.got<KillRank>(0).size(), 1U) << job.words(0);
  EXPECT_EQ(job.got<KillRank>(0).back().rank, 0);
  EXPECT_TRUE(job.got<HangFound>(0).empty());
  job.rank_ends({0, 0}, SIGKILL);
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 1U);
}

/// Reports that rank 0 stands still, for three seconds.
void hang(TwoRanks& job, char state = 'S') {
  for (int second = 0; second < 3; ++second) {
    job.pass(std::chrono::seconds(1));
    const std::chrono::seconds time(25 + second);
    RankStatus stuck = still(0, Activity::working, time);
    stuck.process_state = state;
    job.receive(0, StatusReport{job.coordinator_round(), {stuck, still(1, Activity::waiting, time)}});
  }
}

TEST(CoordinatorRecovery, AHungRankThatSigkillDoesNotEndEndsTheJob) {
  CoordinatorOptions options = options_of(5);
  options.heartbeat_timeout = std::chrono::seconds(20);
  TwoRanks job(options);
  hang(job, 'D');
  ASSERT_EQ(job.got<KillRank>(0).size(), 1U) << job.words(0);
  EXPECT_FALSE(job.got<KillRank>(0).back().stacks_first);
  job.park({1, 0}, 2, 7);
  job.pass(std::chrono::seconds(31));
  ASSERT_EQ(job.got<StopRound>(0).size(), 1U) << job.words(0);
  EXPECT_NE(job.words(0).find("rank 0 has not ended 30 s after SIGKILL"), std::string::npos) << job.words(0);
  ProcessFailure failure;
  failure.rank = 0;
  job.receive(0, RoundEnded{.round = job.coordinator_round(), .ok = false, .failures = {failure}});
  ASSERT_FALSE(job.got<Finish>(0).empty());
  EXPECT_NE(job.words(0).find("it is waiting for a device or a file system"), std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, AHangWithoutARecoveryLeftEndsTheJobAsWithoutRecoveries) {
  CoordinatorOptions options = options_of(1);
  options.heartbeat_timeout = std::chrono::seconds(20);
  TwoRanks job(options);
  hang(job);
  ASSERT_EQ(job.got<KillRank>(0).size(), 1U) << job.words(0);
  EXPECT_TRUE(job.got<KillRank>(0).back().stacks_first);
  job.rank_ends({0, 0}, SIGKILL);
  job.park({1, 0}, 2, 7);
  job.park({0, 1}, 2, std::nullopt);
  job.pass(std::chrono::seconds(2));
  job.receive(0, StatusReport{job.coordinator_round(),
                              {still(0, Activity::working, {}), still(1, Activity::waiting, {})}});
  hang(job);
  EXPECT_EQ(job.got<KillRank>(0).size(), 1U) << job.words(0);
  ASSERT_EQ(job.got<HangFound>(0).size(), 1U);
  EXPECT_TRUE(job.got<HangFound>(0).back().ends_job);
}

TEST(CoordinatorRecovery, SparesEndWithTheTraining) {
  TwoRanks job(options_with_spares());
  for (const int rank : {0, 1})
    job.report({.what = RankReport::What::finished, .process = {rank}, .generation = 1});
  EXPECT_EQ(job.key(elastic::end_key(1)), elastic::kMayLeave);
  ASSERT_EQ(job.got<KillRank>(0).size(), 2U);
  EXPECT_EQ(job.got<KillRank>(0).back().process, 1);
}

TEST(CoordinatorRecovery, AnotherProgramInANewProcessEndsTheJobWithThatReason) {
  TwoRanks job(options_of(5), false);
  for (const int rank : {0, 1})
    job.report({.what = RankReport::What::begun,
                .process = {rank},
                .program = R"({"arguments":["a"],"files":{"/b":"inode 2"}})"});
  job.rank_ends({1, 0}, SIGKILL);
  job.park({0, 0}, 2, 7);
  job.report({.what = RankReport::What::parked,
              .process = {1, 1},
              .generation = 2,
              .program = R"({"arguments":["a"],"files":{"/b":"inode 4"}})"});
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(job.words(0).find("the ranks are not recovered: rank 1 (process 2) is not the program"),
            std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, ARankThatEndsWithSuccessInItsTrainingIsLost) {
  TwoRanks job(options_of(1));
  job.rank_ends({0, 0}, 0);
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 1U);
}

TEST(CoordinatorRecovery, DoesWhatItDidBeforeIfNoRankHasBegun) {
  TwoRanks job(options_of(1), false);
  job.rank_ends({1, 0}, 3 << 8);
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 0U);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(job.words(0).find("the ranks are not recovered: no rank was in run_elastic()"), std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, AUsageErrorIsNotRetried) {
  TwoRanks job(options_of(5));
  job.report({.what = RankReport::What::refused, .process = {1, 0}, .why = "a wrong shape"});
  EXPECT_FALSE(elastic::decision_from(job.key(elastic::decision_key(2))).plan.has_value());
  EXPECT_EQ(job.key(elastic::end_key(1)), elastic::kMayLeave);
  job.rank_ends({1, 0}, 2 << 8);
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 0U);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(job.words(0).find("a wrong shape"), std::string::npos) << job.words(0);
}

TEST(CoordinatorRecovery, WithoutASourceTheJobIsRestarted) {
  TwoRanks job(options_of(5, 1));
  job.rank_ends({0, 0}, SIGKILL);
  job.rank_ends({1, 0}, SIGSEGV);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(job.words(0).find("no rank is left that holds the state"), std::string::npos) << job.words(0);
  EXPECT_FALSE(elastic::decision_from(job.key(elastic::decision_key(2))).plan.has_value());
  job.ended(0, 1, false);
  EXPECT_NE(job.words(0).find("FAILED: rank 0"), std::string::npos) << job.words(0);
  job.pass(std::chrono::seconds(40));
  EXPECT_EQ(job.rounds, 2);
  EXPECT_EQ(job.watched, "lockstep/1/elastic/report/");
}

TEST(CoordinatorRecovery, ARankThatDoesNotParkIsKilled) {
  TwoRanks job(options_of(5));
  job.report({.what = RankReport::What::suspect, .process = {1, 0}, .why = "connection reset"});
  job.park({1, 0}, 2, 7);
  job.pass(std::chrono::seconds(11));
  ASSERT_EQ(job.got<KillRank>(0).size(), 1U);
  EXPECT_EQ(job.got<KillRank>(0).back().rank, 0);
  EXPECT_NE(job.words(0).find("rank 0 has not left its training 10 s after the start"), std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, TheLastRankWithTheStateIsNotKilled) {
  TwoRanks job(options_of(5));
  job.rank_ends({1, 0}, SIGKILL);
  job.pass(std::chrono::seconds(11));
  EXPECT_TRUE(job.got<KillRank>(0).empty());
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(job.words(0).find("no other rank holds a whole state"), std::string::npos) << job.words(0);
}

TEST(CoordinatorRecovery, ASetUpMayTakeThreeTimesAsLongAsTheFirst) {
  TwoRanks job(options_of(5), false);
  job.pass(std::chrono::seconds(20));
  for (const int rank : {0, 1}) job.report({.what = RankReport::What::begun, .process = {rank}});
  job.rank_ends({1, 0}, SIGKILL);
  job.park({0, 0}, 2, 7);
  job.pass(std::chrono::seconds(69));
  EXPECT_TRUE(job.got<KillRank>(0).empty());
  job.pass(std::chrono::seconds(2));
  ASSERT_EQ(job.got<KillRank>(0).size(), 1U);
  EXPECT_EQ(job.got<KillRank>(0).back().process, 1);
  EXPECT_NE(job.words(0).find("rank 1 (process 2) has not finished its set-up"), std::string::npos)
      << job.words(0);
}

TEST(CoordinatorRecovery, ARankOfAnotherNodeIsReplacedThere) {
  TwoNodes job(options_of(5));
  EXPECT_EQ(job.got<Assignment>(7).back().max_recoveries, 5);
  job.rank_ends({3, 0}, SIGKILL, 7);
  EXPECT_TRUE(job.got<ReplaceRank>(0).empty());
  ASSERT_EQ(job.got<ReplaceRank>(7).size(), 1U);
  EXPECT_EQ(job.got<ReplaceRank>(7).back().rank, 3);
  EXPECT_EQ(job.got<ReplaceRank>(7).back().replaces, "1:2");
  EXPECT_TRUE(job.got<NotReplaced>(7).empty());
  for (const int rank : {0, 1, 2}) job.park({rank, 0}, 2, 7);
  job.park({3, 1}, 2, std::nullopt);
  EXPECT_TRUE(elastic::decision_from(job.key(elastic::decision_key(2))).plan.has_value());
  for (const RankProcess process :
       {RankProcess{0, 0}, RankProcess{1, 0}, RankProcess{2, 0}, RankProcess{3, 1}})
    job.report({.what = RankReport::What::finished, .process = process, .generation = 2});
  // A node's round ends when it is known that nobody replaces its ranks.
  job.rank_ends({2, 0}, 0, 7);
  ASSERT_EQ(job.got<NotReplaced>(7).size(), 1U);
  EXPECT_EQ(job.got<NotReplaced>(7).back().rank, 2);
}

TEST(CoordinatorRecovery, ALostNodeWithoutAnotherOneEndsTheJobWithTheReason) {
  TwoNodes job(options_of(5));
  job.join(8, 1);
  job.coordinator.on_disconnect(7, "closed its connection", job.now);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
  EXPECT_NE(
      job.words(0).find("node 1 closed its connection, and with it ranks 2, 3; the ranks are not recovered: "
                        "no node waits that could take its place"),
      std::string::npos)
      << job.words(0);
  EXPECT_FALSE(elastic::decision_from(job.key(elastic::decision_key(2))).plan.has_value());
}

TEST(CoordinatorRecovery, ANodeThatWaitsTakesThePlaceOfALostOne) {
  TwoNodes job(options_of(5));
  job.join(8, 1);
  job.join(9);
  job.coordinator.on_disconnect(7, "closed its connection", job.now);
  EXPECT_TRUE(job.got<StopRound>(0).empty()) << job.words(0);
  EXPECT_TRUE(job.got<Assignment>(8).empty()) << "it has another number of ranks";
  ASSERT_EQ(job.got<Assignment>(9).size(), 1U);
  const Assignment place = job.got<Assignment>(9).back();
  EXPECT_EQ(place.group_rank, 1);
  EXPECT_EQ(place.first_rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.round, 1);
  ASSERT_EQ(place.replaces.size(), 2U);
  EXPECT_EQ(place.replaces[1].rank, 3);
  EXPECT_EQ(place.replaces[1].process, 1);
  EXPECT_EQ(place.replaces[1].replaces, "1:2");
  for (const int rank : {0, 1}) job.park({rank, 0}, 2, 7);
  // Processes of the lost node that live on are nobody.
  job.report(
      {.what = RankReport::What::refused, .process = {2, 0}, .generation = 2, .why = "it was replaced"});
  job.park({2, 0}, 2, 7);
  for (const int rank : {2, 3}) job.park({rank, 1}, 2, std::nullopt);
  const auto decision = elastic::decision_from(job.key(elastic::decision_key(2)));
  ASSERT_TRUE(decision.plan.has_value());
  EXPECT_EQ(decision.plan->receivers, (std::vector<int>{2, 3}));
  job.rank_ends({3, 1}, SIGKILL, 9);
  EXPECT_EQ(job.got<ReplaceRank>(9).size(), 1U);
  // The one that has taken the place is lost, too.
  job.coordinator.on_disconnect(9, "closed its connection", job.now);
  EXPECT_EQ(job.got<StopRound>(0).size(), 1U);
}

TEST(CoordinatorRecovery, ANodeThatIsAskedToEndIsRelievedByTheOneThatWaits) {
  TwoNodes job(options_of(5));
  job.join(9);
  job.receive(7, Draining{SIGTERM});
  EXPECT_TRUE(job.got<KillRank>(7).empty()) << "the others may be asked as well";
  job.pass(std::chrono::seconds(2));
  EXPECT_TRUE(job.got<StopRound>(0).empty()) << job.words(0);
  ASSERT_EQ(job.got<KillRank>(7).size(), 2U);
  job.rank_ends({2, 0}, SIGKILL, 7);
  EXPECT_TRUE(job.got<Assignment>(9).empty());
  EXPECT_TRUE(job.got<Finish>(7).empty());
  job.rank_ends({3, 0}, SIGKILL, 7);
  ASSERT_EQ(job.got<Finish>(7).size(), 1U);
  EXPECT_EQ(job.got<Finish>(7).back().exit_code, 128 + SIGTERM);
  ASSERT_EQ(job.got<Assignment>(9).size(), 1U);
  EXPECT_EQ(job.got<Assignment>(9).back().replaces[0].replaces, "1:2");
  job.coordinator.on_disconnect(7, "left", job.now);
  EXPECT_TRUE(job.got<StopRound>(0).empty()) << job.words(0);
}

TEST(CoordinatorRecovery, ANodeThatIsLostWhileItLeavesIsReplacedAtOnce) {
  TwoNodes job(options_of(5));
  job.join(9);
  job.receive(7, Draining{SIGTERM});
  job.pass(std::chrono::seconds(2));
  job.rank_ends({2, 0}, SIGKILL, 7);
  job.coordinator.on_disconnect(7, "closed its connection", job.now);
  EXPECT_TRUE(job.got<StopRound>(0).empty()) << job.words(0);
  EXPECT_EQ(job.got<Assignment>(9).size(), 1U);
}

TEST(CoordinatorRecovery, AJobThatIsAskedToEndRelievesNobody) {
  for (const NodeId next : {NodeId{9}, NodeId{0}}) {
    TwoNodes job(options_of(5));
    job.join(9);
    job.receive(7, Draining{SIGTERM});
    job.receive(next, Draining{SIGTERM});
    job.pass(std::chrono::seconds(2));
    EXPECT_TRUE(job.got<KillRank>(7).empty());
    EXPECT_TRUE(job.got<Assignment>(9).empty());
    ASSERT_EQ(job.got<StopRound>(7).size(), next == 0 ? 2U : 1U) << "each node that runs ranks";
    EXPECT_EQ(job.got<StopRound>(7).back().signal, SIGTERM);
  }
}

TEST(CoordinatorRecovery, ANodeThatIsAskedToEndWithoutAnotherOneEndsTheJob) {
  TwoNodes job(options_of(5));
  job.receive(7, Draining{SIGTERM});
  EXPECT_TRUE(job.got<KillRank>(7).empty());
  ASSERT_EQ(job.got<StopRound>(7).size(), 1U);
  EXPECT_EQ(job.got<StopRound>(7).back().signal, SIGTERM);
}

TEST(CoordinatorRecovery, RanksThatWaitAreReleasedWhenTheJobIsAskedToEnd) {
  TwoRanks job(options_of(5));
  job.receive(0, Draining{SIGTERM});
  EXPECT_EQ(job.key(elastic::end_key(1)), elastic::kMayLeave);
  job.rank_ends({1, 0}, SIGKILL);
  EXPECT_EQ(job.got<ReplaceRank>(0).size(), 0U);
}

TEST(CoordinatorRecovery, ATrainingWithoutStepsMayEndOnOneRankFirst) {
  TwoRanks job(options_of(5), false);
  job.report({.what = RankReport::What::begun, .process = {0}});
  job.report({.what = RankReport::What::finished, .process = {0}});
  job.report({.what = RankReport::What::begun, .process = {1}});
  EXPECT_EQ(job.key(elastic::end_key(1)), "");
  job.report({.what = RankReport::What::finished, .process = {1}});
  EXPECT_EQ(job.key(elastic::end_key(1)), elastic::kMayLeave);
}

}  // namespace
}  // namespace lockstep::launch
