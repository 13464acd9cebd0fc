#include "core/elastic/recovery_planner.hpp"

#include <gtest/gtest.h>

namespace lockstep::elastic {
namespace {

using Kind = HeldState::Kind;
using std::chrono::seconds;

constexpr RecoveryPlanner::Time kStart{std::chrono::hours(1)};

template <class Action>
std::vector<Action> select(const PlannerActions& actions) {
  std::vector<Action> result;
  for (const auto& action : actions) {
    if (const auto* found = std::get_if<Action>(&action)) result.push_back(*found);
  }
  return result;
}

RecoveryPlanner three_ranks(int recoveries = 10) { return {{.max_recoveries = recoveries}, {0, 0, 1}}; }

HeldState clean(std::uint64_t step) { return {.kind = Kind::clean, .step = step}; }
HeldState torn(std::uint64_t step) { return {.kind = Kind::torn, .step = step}; }
HeldState none() { return {}; }

/// Rank 2 is lost, its successor is there, and the others park with these reports.
PlannerActions recover(RecoveryPlanner& planner, const HeldState& zero, const HeldState& one,
                       int process = 1) {
  const Generation next = planner.generation() + 1;
  PlannerActions all = planner.on_lost({2, process - 1}, "was killed by SIGKILL", kStart);
  for (const auto& actions :
       {planner.on_parked(next, {0, 0}, zero, kStart), planner.on_parked(next, {1, 0}, one, kStart),
        planner.on_parked(next, {2, process}, none(), kStart)})
    all.insert(all.end(), actions.begin(), actions.end());
  return all;
}

std::string reason(const PlannerActions& actions) {
  const auto found = select<GiveUp>(actions);
  return found.empty() ? "" : found.front().reason;
}

TEST(RecoveryPlanner, LostRankIsReplacedOnItsNodeAndReceivesTheNewestState) {
  RecoveryPlanner planner = three_ranks();
  const PlannerActions actions = recover(planner, clean(7), clean(8));
  ASSERT_EQ(select<Revoke>(actions).size(), 1U);
  EXPECT_EQ(select<Revoke>(actions).front().why, "rank 2 was killed by SIGKILL");
  ASSERT_EQ(select<Replace>(actions).size(), 1U);
  EXPECT_EQ(select<Replace>(actions).front().node, 1);
  EXPECT_EQ(select<Replace>(actions).front().process, (RankProcess{2, 1}));
  const auto plans = select<Publish>(actions);
  ASSERT_EQ(plans.size(), 1U);
  const RecoveryPlan& plan = plans.front().plan;
  EXPECT_EQ(plan.generation, 2U);
  EXPECT_EQ(plan.step, 8U);
  EXPECT_EQ(plan.source, 1);
  EXPECT_EQ(plan.receivers, (std::vector<int>{0, 2}));
  EXPECT_EQ(plan.members, (std::vector<RankProcess>{{0, 0}, {1, 0}, {2, 1}}));
}

TEST(RecoveryPlanner, TransientFailureRecoversWithoutAnyNewProcess) {
  RecoveryPlanner planner = three_ranks();
  const auto revoked = planner.on_suspect(1, {0, 0}, "connection reset", kStart);
  ASSERT_EQ(select<Revoke>(revoked).size(), 1U);
  EXPECT_TRUE(planner.on_suspect(1, {1, 0}, "connection reset", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {1, 0}, clean(3), kStart).empty());
  const auto plans = select<Publish>(planner.on_parked(2, {2, 0}, clean(3), kStart));
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_TRUE(plans.front().plan.receivers.empty());
  EXPECT_EQ(planner.deadline(), RecoveryPlanner::Time::max());
}

TEST(RecoveryPlanner, TornStatesEndWithAReason) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_EQ(
      reason(recover(planner, torn(4), torn(4))),
      "rank 2 was killed by SIGKILL; the ranks are not recovered: rank 0 was in the middle of the update of "
      "step 4, and no other rank holds a whole state: commit a step before anything else that communicates");
}

TEST(RecoveryPlanner, StatesOfTwoStepsApartAreRefused) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_EQ(
      reason(recover(planner, clean(3), clean(5))),
      "rank 2 was killed by SIGKILL; the ranks are not recovered: rank 1 is at step 5, but rank 0 at step 3: "
      "each step must contain a collective of all ranks");
}

TEST(RecoveryPlanner, RankThatDoesNotParkIsKilledThenReplaced) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_FALSE(planner.on_suspect(1, {0, 0}, "timeout", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {2, 0}, clean(3), kStart).empty());
  EXPECT_EQ(planner.deadline(), kStart + seconds(10));
  EXPECT_TRUE(planner.on_timer(kStart + seconds(9)).empty());
  const auto kills = select<Kill>(planner.on_timer(kStart + seconds(10)));
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_EQ(kills.front().process, (RankProcess{1, 0}));
  // A report that it sent before it was killed comes too late.
  EXPECT_TRUE(planner.on_parked(2, {1, 0}, clean(3), kStart + seconds(10)).empty());
  const auto lost = planner.on_lost({1, 0}, "was killed by SIGKILL", kStart + seconds(11));
  ASSERT_EQ(select<Replace>(lost).size(), 1U);
  EXPECT_TRUE(planner.on_lost({1, 0}, "was killed by SIGKILL", kStart + seconds(11)).empty());
  EXPECT_EQ(select<Publish>(planner.on_parked(2, {1, 1}, none(), kStart + seconds(12))).size(), 1U);
}

TEST(RecoveryPlanner, ProcessThatCannotBeKilledEndsTheRound) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_FALSE(planner.on_suspect(1, {0, 0}, "timeout", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {2, 0}, clean(3), kStart).empty());
  EXPECT_EQ(select<Kill>(planner.on_timer(kStart + seconds(10))).size(), 2U);
  EXPECT_EQ(reason(planner.on_timer(kStart + seconds(40))),
            "rank 0 lost a connection: timeout; the ranks are not recovered: rank 0 has not ended 30 s after "
            "SIGKILL");
  EXPECT_TRUE(planner.is_over());
}

/// Ranks that may hold the only whole state are never killed.
TEST(RecoveryPlanner, TheLastRanksWithTheStateAreNotKilled) {
  const auto limit = kStart + seconds(10);
  RecoveryPlanner nobody = three_ranks();
  EXPECT_FALSE(nobody.on_suspect(1, {0, 0}, "timeout", kStart).empty());
  const auto actions = nobody.on_timer(limit);
  EXPECT_TRUE(select<Kill>(actions).empty());
  EXPECT_EQ(
      reason(actions),
      "rank 0 lost a connection: timeout; the ranks are not recovered: rank 0 has not left its training "
      "10 s after the start of the recovery (--recovery-timeout), and no other rank holds a whole "
      "state, so that it is not killed");
  EXPECT_TRUE(nobody.is_over());
  // Neither half a state nor a new process can stand in for it.
  RecoveryPlanner half = three_ranks();
  EXPECT_FALSE(half.on_lost({2, 0}, "was killed by SIGKILL", kStart).empty());
  EXPECT_TRUE(half.on_parked(2, {1, 0}, torn(3), kStart).empty());
  EXPECT_TRUE(half.on_parked(2, {2, 1}, none(), kStart).empty());
  EXPECT_TRUE(select<Kill>(half.on_timer(limit)).empty());
  EXPECT_TRUE(half.is_over());
}

/// A newcomer in its set-up has missed nothing when a further rank is lost.
TEST(RecoveryPlanner, AFurtherLossDuringASetUpCostsThatRankOnly) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_EQ(select<Replace>(planner.on_lost({2, 0}, "was killed by SIGKILL", kStart)).size(), 1U);
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  EXPECT_EQ(select<Replace>(planner.on_lost({1, 0}, "was killed by SIGKILL", kStart)).size(), 1U);
  EXPECT_TRUE(planner.on_parked(2, {2, 1}, none(), kStart + seconds(60)).empty());
  const auto plans = select<Publish>(planner.on_parked(2, {1, 1}, none(), kStart + seconds(60)));
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans.front().plan.members, (std::vector<RankProcess>{{0, 0}, {1, 1}, {2, 1}}));
  EXPECT_EQ(plans.front().plan.receivers, (std::vector<int>{1, 2}));
}

TEST(RecoveryPlanner, ASetUpThatDoesNotEndIsKilledAndRepeated) {
  RecoveryPlanner planner({.max_recoveries = 10, .replacement_timeout = seconds(30)}, {0, 0});
  EXPECT_FALSE(planner.on_lost({1, 0}, "was killed by SIGKILL", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  const auto kills = select<Kill>(planner.on_timer(kStart + seconds(30)));
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_EQ(kills.front().process, (RankProcess{1, 1}));
  EXPECT_EQ(kills.front().why, "has not finished its set-up, up to run_elastic(), 30 s after its start");
}

TEST(RecoveryPlanner, TheThirdLossWithoutANewStepIsTheLast) {
  RecoveryPlanner planner = three_ranks();
  for (int process = 1; process <= 2; ++process)
    EXPECT_EQ(select<Publish>(recover(planner, clean(3), clean(3), process)).size(), 1U);
  EXPECT_FALSE(planner.on_lost({2, 2}, "was killed by SIGKILL", kStart).empty());
  EXPECT_TRUE(planner.on_parked(4, {0, 0}, clean(3), kStart).empty());
  // It ends before the new process is there.
  EXPECT_EQ(
      reason(planner.on_parked(4, {1, 0}, clean(3), kStart)),
      "rank 2 (process 3) was killed by SIGKILL; the ranks are not recovered: 3 losses in a row without "
      "a new step, the last in step 3");
  RecoveryPlanner parked = three_ranks();
  for (int process = 1; process <= 2; ++process)
    EXPECT_EQ(select<Publish>(recover(parked, clean(3), clean(3), process)).size(), 1U);
  EXPECT_FALSE(parked.on_suspect(3, {0, 0}, "connection reset", kStart).empty());
  EXPECT_TRUE(parked.on_parked(4, {0, 0}, clean(3), kStart).empty());
  EXPECT_TRUE(parked.on_parked(4, {1, 0}, clean(3), kStart).empty());
  const auto last = parked.on_lost({2, 2}, "was killed by SIGKILL", kStart);
  EXPECT_TRUE(select<Replace>(last).empty());
  EXPECT_NE(reason(last), "");
}

TEST(RecoveryPlanner, StepsBetweenRecoveriesCountAsProgress) {
  RecoveryPlanner planner = three_ranks();
  for (int process = 1; process <= 8; ++process) {
    const auto step = static_cast<std::uint64_t>(process);
    EXPECT_EQ(select<Publish>(recover(planner, clean(step), clean(step), process)).size(), 1U);
  }
  EXPECT_EQ(planner.recoveries(), 8);
}

TEST(RecoveryPlanner, NewProcessThatEndsInItsSetUpIsStartedThreeTimesAtMost) {
  RecoveryPlanner planner = three_ranks();
  for (int process = 0; process < 3; ++process)
    EXPECT_EQ(select<Replace>(planner.on_lost({2, process}, "exited with 1", kStart)).size(), 1U);
  EXPECT_EQ(
      reason(planner.on_lost({2, 3}, "exited with 1", kStart)),
      "rank 2 (process 4) exited with 1; the ranks are not recovered: 4 processes of this rank ended during "
      "one recovery");
}

TEST(RecoveryPlanner, ASpareTakesThePlaceOfItsRankAndAnotherIsStartedAfterwards) {
  RecoveryPlanner planner({.max_recoveries = 10, .spares = 1}, {0, 0, 1});
  const auto first = select<StartSpare>(planner.start_spares(kStart));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first.front().process, (RankProcess{0, 1}));
  EXPECT_EQ(first.back().process, (RankProcess{2, 1}));
  EXPECT_EQ(first.back().node, 1);
  const auto lost = planner.on_lost({2, 0}, "was killed by SIGKILL", kStart);
  EXPECT_TRUE(select<Replace>(lost).empty());
  const auto calls = select<CallSpare>(lost);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls.front().process, (RankProcess{2, 1}));
  EXPECT_EQ(calls.front().generation, 2U);
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {1, 0}, clean(3), kStart).empty());
  const auto end = planner.on_parked(2, {2, 1}, none(), kStart);
  EXPECT_EQ(select<Publish>(end).size(), 1U);
  const auto next = select<StartSpare>(end);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next.front().process, (RankProcess{2, 2}));
  // Rank 1 has none.
  EXPECT_EQ(select<Replace>(planner.on_lost({1, 0}, "exited with 1", kStart)).size(), 1U);
}

TEST(RecoveryPlanner, ASpareThatEndsCostsNothingAndIsStartedThreeTimesAtMost) {
  RecoveryPlanner planner({.max_recoveries = 10, .spares = 1}, {0, 0});
  static_cast<void>(planner.start_spares(kStart));
  for (int process = 1; process <= 2; ++process) {
    const auto actions = planner.on_lost({0, process}, "exited with 1", kStart);
    EXPECT_EQ(select<StartSpare>(actions).size(), 1U);
    EXPECT_TRUE(select<Revoke>(actions).empty());
  }
  const auto last = planner.on_lost({0, 3}, "exited with 1", kStart);
  EXPECT_TRUE(select<StartSpare>(last).empty());
  ASSERT_EQ(select<TellOfSpare>(last).size(), 1U);
  EXPECT_EQ(select<TellOfSpare>(last).front().text,
            "exited with 1, as those before it: the rank gets no other");
  EXPECT_EQ(planner.recoveries(), 0);
  // Numbers are not used twice.
  const auto replaced = select<Replace>(planner.on_lost({0, 0}, "exited with 1", kStart));
  ASSERT_EQ(replaced.size(), 1U);
  EXPECT_EQ(replaced.front().process, (RankProcess{0, 4}));
}

TEST(RecoveryPlanner, ASpareThatWasCalledAndEndsIsReplacedLikeAnyProcess) {
  RecoveryPlanner planner({.max_recoveries = 10, .spares = 1}, {0, 0});
  static_cast<void>(planner.start_spares(kStart));
  EXPECT_EQ(select<CallSpare>(planner.on_lost({0, 0}, "exited with 1", kStart)).size(), 1U);
  const auto replaced = select<Replace>(planner.on_lost({0, 1}, "was killed by SIGKILL", kStart));
  ASSERT_EQ(replaced.size(), 1U);
  EXPECT_EQ(replaced.front().process, (RankProcess{0, 2}));
}

TEST(RecoveryPlanner, ARankThatHangsIsKilledAndTheRoundGivesUpIfThatDoesNotEndIt) {
  RecoveryPlanner planner({.max_recoveries = 10, .kill_timeout = seconds(30)}, {0, 0});
  const auto hang = planner.on_hang(1, "makes no progress", kStart);
  ASSERT_EQ(select<Revoke>(hang).size(), 1U);
  EXPECT_EQ(select<Revoke>(hang).front().why, "rank 1 makes no progress");
  ASSERT_EQ(select<Kill>(hang).size(), 1U);
  EXPECT_EQ(select<Kill>(hang).front().process, (RankProcess{1, 0}));
  EXPECT_TRUE(planner.on_hang(1, "makes no progress", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(3), kStart).empty());
  RecoveryPlanner ends = planner;
  EXPECT_EQ(planner.deadline(), kStart + seconds(30));
  EXPECT_EQ(reason(planner.on_timer(kStart + seconds(30))),
            "rank 1 makes no progress; the ranks are not recovered: rank 1 has not ended 30 s after SIGKILL");
  EXPECT_EQ(select<Replace>(ends.on_lost({1, 0}, "was killed by SIGKILL", kStart)).size(), 1U);
  EXPECT_EQ(select<Publish>(ends.on_parked(2, {1, 1}, none(), kStart)).size(), 1U);
}

TEST(RecoveryPlanner, SparesThatCanNotBeCalledAnyMoreEnd) {
  RecoveryPlanner planner({.max_recoveries = 1, .spares = 2}, {0, 0});
  static_cast<void>(planner.start_spares(kStart));
  RecoveryPlanner finishes = planner;
  // The only recovery: the spare that is left is of use until it is over.
  EXPECT_TRUE(select<EndSpare>(planner.on_lost({0, 0}, "exited with 1", kStart)).empty());
  EXPECT_TRUE(planner.on_parked(2, {1, 0}, clean(3), kStart).empty());
  const auto end = planner.on_parked(2, {0, 1}, none(), kStart);
  EXPECT_TRUE(select<StartSpare>(end).empty());
  ASSERT_EQ(select<EndSpare>(end).size(), 1U);
  EXPECT_EQ(select<EndSpare>(end).front().process, (RankProcess{1, 1}));
  EXPECT_TRUE(planner.spares().empty());
  EXPECT_EQ(planner.deadline(), RecoveryPlanner::Time::max());
  EXPECT_TRUE(planner.on_lost({1, 1}, "was killed by SIGKILL", kStart).empty());

  EXPECT_TRUE(finishes.on_finished(1, {0, 0}).empty());
  EXPECT_EQ(select<EndSpare>(finishes.on_finished(1, {1, 0})).size(), 2U);
}

TEST(RecoveryPlanner, ASpareThatDoesNotFinishItsSetUpIsEndedAndAnotherIsStarted) {
  RecoveryPlanner planner({.max_recoveries = 9, .replacement_timeout = seconds(60), .spares = 2}, {0, 0});
  static_cast<void>(planner.start_spares(kStart));
  planner.on_spare_ready({0, 1});
  EXPECT_EQ(planner.deadline(), kStart + seconds(60));
  const auto late = planner.on_timer(kStart + seconds(60));
  ASSERT_EQ(select<EndSpare>(late).size(), 1U);
  EXPECT_EQ(select<EndSpare>(late).front().process, (RankProcess{1, 1}));
  ASSERT_EQ(select<TellOfSpare>(late).size(), 1U);
  EXPECT_EQ(select<TellOfSpare>(late).front().text,
            "has not finished its set-up, up to run_elastic(), 60 s after its start: killing it");
  ASSERT_EQ(select<StartSpare>(late).size(), 1U);
  EXPECT_EQ(select<StartSpare>(late).front().process, (RankProcess{1, 2}));
  // One that is called in its set-up keeps the limit that it has.
  static_cast<void>(planner.on_lost({1, 0}, "exited with 1", kStart + seconds(90)));
  static_cast<void>(planner.on_parked(2, {0, 0}, clean(3), kStart + seconds(90)));
  EXPECT_EQ(planner.deadline(), kStart + seconds(120));
}

TEST(RecoveryPlanner, LimitsAndLostNodesEndTheRoundWithTheirReason) {
  RecoveryPlanner off = three_ranks(0);
  EXPECT_EQ(reason(off.on_lost({1, 0}, "exited with 1", kStart)),
            "rank 1 exited with 1; the ranks are not recovered: recoveries are off (--max-recoveries 0)");
  RecoveryPlanner once = three_ranks(1);
  EXPECT_EQ(reason(recover(once, clean(1), clean(1))), "");
  EXPECT_EQ(reason(once.on_lost({2, 1}, "exited with 1", kStart)),
            "rank 2 (process 2) exited with 1; the ranks are not recovered: all 1 recoveries "
            "(--max-recoveries) are "
            "used up");
  RecoveryPlanner nodes = three_ranks();
  EXPECT_EQ(
      reason(nodes.on_node_lost(0, "closed its connection", false, kStart)),
      "node 0 closed its connection, and with it ranks 0, 1; the ranks are not recovered: no node waits "
      "that could take its place");
  RecoveryPlanner all({.max_recoveries = 10}, {0, 0});
  EXPECT_EQ(reason(all.on_lost({0, 0}, "exited with 1", kStart)), "");
  EXPECT_EQ(reason(all.on_lost({1, 0}, "exited with 1", kStart)),
            "rank 1 exited with 1; the ranks are not recovered: no rank is left that holds the state");
}

TEST(RecoveryPlanner, ALostNodesRanksAreStartedOnTheNodeThatWaits) {
  RecoveryPlanner planner({.max_recoveries = 10, .spares = 1}, {0, 0, 1, 1});
  static_cast<void>(planner.start_spares(kStart));
  const PlannerActions actions = planner.on_node_lost(1, "closed its connection", true, kStart);
  EXPECT_EQ(select<Revoke>(actions).front().why, "node 1 closed its connection, and with it ranks 2, 3");
  EXPECT_TRUE(select<Replace>(actions).empty());
  EXPECT_TRUE(select<CallSpare>(actions).empty());
  ASSERT_EQ(select<StartNode>(actions).size(), 1U);
  const StartNode start = select<StartNode>(actions).front();
  EXPECT_EQ(start.node, 1);
  EXPECT_EQ(start.generation, 2U);
  // Number 1 of rank 2 was its spare's.
  EXPECT_EQ(start.processes, (std::vector<RankProcess>{{2, 2}, {3, 1}}));
  // Processes of the lost node may live on, and are nobody.
  EXPECT_TRUE(planner.on_parked(2, {2, 0}, clean(4), kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {3, 0}, clean(4), kStart).empty());
  for (const int rank : {0, 1}) EXPECT_TRUE(planner.on_parked(2, {rank, 0}, clean(4), kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {2, 2}, {}, kStart).empty());
  const PlannerActions last = planner.on_parked(2, {3, 1}, {}, kStart);
  ASSERT_EQ(select<Publish>(last).size(), 1U);
  EXPECT_EQ(select<Publish>(last).front().plan.receivers, (std::vector<int>{2, 3}));
  // The spare of the new node's first rank.
  ASSERT_EQ(select<StartSpare>(last).size(), 1U);
  EXPECT_EQ(select<StartSpare>(last).front().process, (RankProcess{2, 3}));
}

TEST(RecoveryPlanner, ANodeLostInARecoveryIsReplacedInTheSame) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_EQ(select<Replace>(planner.on_lost({1, 0}, "exited with 1", kStart)).size(), 1U);
  const PlannerActions actions = planner.on_node_lost(1, "closed its connection", true, kStart);
  EXPECT_TRUE(select<Revoke>(actions).empty());
  ASSERT_EQ(select<StartNode>(actions).size(), 1U);
  EXPECT_EQ(planner.recoveries(), 1);
  EXPECT_EQ(select<GiveUp>(planner.on_node_lost(0, "closed its connection", true, kStart)).size(), 1U)
      << "nobody holds the state";
}

TEST(RecoveryPlanner, ANodeThatLeavesIsReplacedWhenAllItsProcessesHaveEnded) {
  RecoveryPlanner planner({.max_recoveries = 10, .spares = 1}, {0, 0, 1, 1});
  static_cast<void>(planner.start_spares(kStart));
  PlannerActions actions;
  ASSERT_TRUE(planner.on_node_leaves(1, "is asked to end", kStart, actions));
  EXPECT_EQ(select<Revoke>(actions).front().why, "node 1 is asked to end");
  ASSERT_EQ(select<Kill>(actions).size(), 2U);
  ASSERT_EQ(select<EndSpare>(actions).size(), 1U);
  EXPECT_TRUE(select<StartNode>(actions).empty());
  EXPECT_TRUE(planner.on_lost({3, 0}, "was killed", kStart).empty());
  const PlannerActions last = planner.on_lost({2, 0}, "was killed", kStart);
  ASSERT_EQ(select<StartNode>(last).size(), 1U);
  EXPECT_EQ(select<StartNode>(last).front().processes, (std::vector<RankProcess>{{2, 2}, {3, 1}}));
  EXPECT_FALSE(planner.on_node_leaves(0, "is asked to end", kStart, actions)) << "a recovery is under way";
  // From now on its ranks are replaced there.
  EXPECT_EQ(select<Replace>(planner.on_lost({3, 1}, "exited with 1", kStart)).size(), 1U);
  RecoveryPlanner alone({.max_recoveries = 10}, {0, 0});
  EXPECT_FALSE(alone.on_node_leaves(0, "is asked to end", kStart, actions)) << "nobody else has the state";
}

TEST(RecoveryPlanner, FinishedRanksLeaveTogetherOrHelp) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_TRUE(planner.on_finished(1, {0, 0}).empty());
  EXPECT_TRUE(planner.on_finished(1, {1, 0}).empty());
  // Rank 2 dies in the last step: the finished ones are needed.
  EXPECT_EQ(select<Publish>(recover(planner, clean(9), clean(9))).front().plan.step, 9U);
  EXPECT_TRUE(planner.on_finished(2, {0, 0}).empty());
  EXPECT_TRUE(planner.on_finished(2, {1, 0}).empty());
  EXPECT_EQ(select<ConfirmFinish>(planner.on_finished(2, {2, 1})).size(), 1U);
  EXPECT_TRUE(planner.on_lost({0, 0}, "exited with 0", kStart).empty());
}

TEST(RecoveryPlanner, LateReportsOfOldGenerationsAndProcessesChangeNothing) {
  RecoveryPlanner planner = three_ranks();
  EXPECT_EQ(select<Publish>(recover(planner, clean(1), clean(1))).size(), 1U);
  EXPECT_TRUE(planner.on_suspect(1, {0, 0}, "connection reset", kStart).empty());
  EXPECT_TRUE(planner.on_parked(2, {0, 0}, clean(1), kStart).empty());
  EXPECT_TRUE(planner.on_finished(1, {0, 0}).empty());
  EXPECT_TRUE(planner.on_lost({2, 0}, "was killed by SIGKILL", kStart).empty());
  EXPECT_TRUE(planner.on_suspect(2, {2, 0}, "connection reset", kStart).empty());
}

}  // namespace
}  // namespace lockstep::elastic
