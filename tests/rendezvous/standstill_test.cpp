// Ranks that stand still, as the coordinator hears of them from several nodes.

#include <gtest/gtest.h>

#include "coordinator_harness.hpp"
#include "lockstep/core/error.hpp"
#include "rendezvous/rank_messages.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

RankStatus rank_view(int rank, Activity activity, const std::string& what, std::chrono::milliseconds still) {
  RankStatus view;
  view.rank = rank;
  view.place = "node" + std::to_string(rank) + ", pid 7";
  view.beat = HeartbeatRecord{.activity = activity, .what = what, .number = 0, .step = 5};
  view.still = still;
  return view;
}
RankStatus waits(int rank, std::chrono::milliseconds still = 15s) {
  return rank_view(rank, Activity::waiting, "all_reduce", still);
}
RankStatus works(int rank, std::chrono::milliseconds still = 15s) {
  return rank_view(rank, Activity::working, "forward", still);
}

/// Two nodes of one rank each.
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
  void tell(NodeId node, const std::vector<RankStatus>& views, int round = 1) {
    hear(node, still_message(round, views));
  }
  std::vector<Json> standstills(NodeId node) const { return got(node, "standstill"); }
};

TEST(CoordinatorHangs, NamesTheRankOfAnotherNodeThatWorksOnEveryNode) {
  StillJob job;
  job.tell(0, {waits(0)});
  job.tell(1, {works(1)});
  for (int i = 0; i < 16; ++i) job.pass(1s);
  EXPECT_TRUE(job.standstills(0).empty()) << "30 s, and what the news may be late";
  job.pass(1s);
  for (NodeId node = 0; node < 2; ++node) {
    ASSERT_EQ(job.standstills(node).size(), 1U);
    const Json told = job.standstills(node).front();
    EXPECT_EQ(told["text"],
              "rank 1 (node1, pid 7) has not moved for 30 s: last seen in forward, step 5; rank 0 waits in "
              "all_reduce for 30 s");
    EXPECT_EQ(told["ends"], false);
  }
}

TEST(CoordinatorHangs, IsSilentWhileAnyNodeHasToldNothing) {
  StillJob job(10s, 3);
  job.tell(0, {waits(0)});
  job.tell(1, {works(1)});
  job.pass(1h);
  EXPECT_TRUE(job.standstills(0).empty());
  job.tell(2, {waits(2)});
  job.pass(1s);
  EXPECT_EQ(job.standstills(0).size(), 1U);
}

TEST(CoordinatorHangs, ForgetsWhatANodeToldWhenItsRanksMove) {
  StillJob job(20s);
  job.tell(0, {waits(0)});
  job.tell(1, {works(1)});
  job.pass(5s);
  job.tell(1, {});
  job.pass(1h);
  EXPECT_TRUE(job.standstills(0).empty());
  job.tell(1, {works(1, 10s)});
  job.pass(5s);
  EXPECT_TRUE(job.standstills(0).empty());
}

TEST(CoordinatorHangs, ForgetsTheRoundBefore) {
  StillJob job(20s);
  job.tell(0, {waits(0)});
  job.tell(1, {works(1)}, 7);
  job.pass(1h);
  EXPECT_TRUE(job.standstills(0).empty()) << "of no round that runs";
}

TEST(CoordinatorHangs, EndsTheJobInTheNameOfTheStuckRank) {
  StillJob job(20s);
  job.tell(0, {waits(0)});
  job.tell(1, {works(1)});
  EXPECT_EQ(job.coordinator.deadline(), job.now + 1s);
  for (int i = 0; i < 10; ++i) job.pass(1s);
  ASSERT_EQ(job.standstills(1).size(), 1U);
  const Json told = job.standstills(1).front();
  EXPECT_EQ(told["ends"], true);
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["stuck"], Json({1}));
  EXPECT_EQ(told["limit"], 20000);
}

TEST(CoordinatorHangs, RanksOfANodeThatHasEndedAreNamedInTheNameOfOneThatWaits) {
  StillJob job(20s);
  RankStatus gone = works(1, 0s);
  gone.status = 0;
  job.tell(1, {gone});
  job.ended(1, 1, true);
  job.tell(0, {waits(0)});
  for (int i = 0; i < 10; ++i) job.pass(1s);
  ASSERT_EQ(job.standstills(0).size(), 1U);
  const Json told = job.standstills(0).front();
  EXPECT_EQ(told["rank"], 0);
  EXPECT_NE(told["text"].get<std::string>().find("rank 1 (node1, pid 7) left at step 5"), std::string::npos);
}

TEST(CoordinatorHangs, MessagesWithoutFormAreErrorsOfTheirSender) {
  StillJob job;
  const auto hear = [&](const Json& ranks) {
    job.hear(1, {{"type", "still"}, {"round", 1}, {"ranks", ranks}});
  };
  for (const Json& ranks :
       {Json(7), Json({1}), Json({Json({1, "x", 5})}), Json({Json({-1, "x", 5, nullptr, "S"})}),
        Json({Json({1, "x", -5, nullptr, "S"})}), Json({Json({1, "x", 5, nullptr, "S", 9, "w", 1, 1})}),
        Json({Json({1, 2, 5, nullptr, "S"})}), Json({Json({1, "x", 5, "0", "S"})}),
        Json({Json({1, "x", 5, nullptr})}), Json({Json({1, "x", 5, nullptr, "SS"})}),
        Json({Json({1, "x", 5, nullptr, 7})})})
    EXPECT_THROW(hear(ranks), DataError) << ranks;
  EXPECT_THROW(job.hear(1, {{"type", "stacks_of"}, {"for", "me"}, {"text", "x"}}), DataError);
}

TEST(CoordinatorHangs, RanksSurviveTheWayThroughAMessage) {
  RankStatus view = works(3, 1234ms);
  view.beat->number = 77;
  view.status = 256;
  view.process_state = 'T';
  RankStatus silent;
  silent.rank = 4;
  const auto read = read_still(Json::parse(still_message(1, {view, silent}).dump()));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].place, view.place);
  EXPECT_EQ(read[0].still, 1234ms);
  EXPECT_EQ(read[0].status, 256);
  EXPECT_EQ(read[0].process_state, 'T');
  EXPECT_EQ(read[0].beat->text(), view.beat->text());
  EXPECT_EQ(read[0].beat->number, 77U);
  EXPECT_EQ(read[0].beat->step, 5U);
  EXPECT_FALSE(read[1].beat);
  EXPECT_FALSE(read[1].status);
}

TEST(CoordinatorStacks, OfOtherNodesComeToWhoAsks) {
  StillJob job(0s, 3);
  job.hear(2, {{"type", "stacks"}});
  EXPECT_EQ(job.got(0, "stacks").size(), 1U);
  EXPECT_EQ(job.got(1, "stacks").back()["for"], 2);
  EXPECT_TRUE(job.got(2, "stacks").empty());
  job.hear(1, {{"type", "stacks_of"}, {"for", 2}, {"text", "here\n"}});
  EXPECT_EQ(job.words(2).find("here") != std::string::npos, true);
  EXPECT_TRUE(job.got(0, "report").empty());
  job.hear(1, {{"type", "stacks_of"}, {"for", 99}, {"text", "nobody asked\n"}});
}

TEST(CoordinatorStacks, AreLeftOutWhereThereAreTooMany) {
  StillJob job;
  job.hear(1, {{"type", "stacks"}});
  const std::string much(1 << 19, 'x');
  for (int i = 0; i < 6; ++i) job.hear(0, {{"type", "stacks_of"}, {"for", 1}, {"text", much}});
  EXPECT_EQ(job.got(1, "report").size(), 4U);
  EXPECT_NE(job.words(1).find("are left out"), std::string::npos);
  job.hear(1, {{"type", "stacks"}});
  job.hear(0, {{"type", "stacks_of"}, {"for", 1}, {"text", "again\n"}});
  EXPECT_EQ(job.got(1, "report").size(), 5U);
}

}  // namespace
}  // namespace lockstep::launch
