#include <gtest/gtest.h>

#include <cstdio>

#include "recovery/recovery_schedules.hpp"

namespace lockstep::elastic {
namespace {

using Kind = Choice::Kind;

/// `tests/rendezvous/recovery_simulation.cpp` runs more of each by hand.
TEST(RecoverySimulation, RoundsKeepBitsAndSurvivorsInRandomSchedules) {
  const ScheduleCounts counts = run_rounds(1, 20'000);
  std::printf("%s\n", counts.describe().c_str());
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.schedules, 20'000U);
  EXPECT_GT(counts.recoveries, 5'000U);
  EXPECT_GT(counts.called, 2'000U);
  EXPECT_GT(counts.succeeded, 10'000U);
}

TEST(RecoverySimulation, JobsOfTheCoordinatorRestartOnlyWithAReason) {
  const ScheduleCounts counts = run_jobs(1, 20'000);
  std::printf("%s\n", counts.describe().c_str());
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.schedules, 20'000U);
  EXPECT_GT(counts.recoveries, 5'000U);
  EXPECT_GT(counts.restarts, 500U);
}

TEST(RecoverySimulation, EveryOrderOfOneFaultInThreeStepsRecovers) {
  WorldOptions options;
  options.joins_local_steps = true;
  const ExhaustiveCounts counts = explore(options, 1, {Kind::crash, Kind::pause, Kind::glitch});
  std::printf("3 ranks on 2 nodes, 3 steps, 1 fault: %llu states, %llu transitions\n",
              static_cast<unsigned long long>(counts.states),
              static_cast<unsigned long long>(counts.transitions));
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.given_up, 0U);
  EXPECT_GT(counts.succeeded, 100U);
}

TEST(RecoverySimulation, EveryOrderOfTwoCrashesInOneStepRecovers) {
  WorldOptions options;
  options.steps = 1;
  options.joins_local_steps = true;
  const ExhaustiveCounts counts = explore(options, 2, {Kind::crash});
  std::printf("3 ranks on 2 nodes, 1 step, 2 crashes: %llu states, %llu transitions\n",
              static_cast<unsigned long long>(counts.states),
              static_cast<unsigned long long>(counts.transitions));
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.given_up, 0U);
  EXPECT_GT(counts.succeeded, 100U);
}

/// Processes of the lost node live on for a while, train, and reach the store. Two such faults of three ranks
/// are millions of states: by hand.
TEST(RecoverySimulation, EveryOrderOfALostNodeRecovers) {
  WorldOptions options;
  options.steps = 2;
  options.spare_nodes = 1;
  options.joins_local_steps = true;
  const ExhaustiveCounts counts = explore(options, 1, {Kind::lose_node, Kind::drain_node});
  std::printf(
      "3 ranks on 2 nodes, 1 more node, 2 steps, 1 node is lost or leaves: %llu states, %llu transitions\n",
      static_cast<unsigned long long>(counts.states), static_cast<unsigned long long>(counts.transitions));
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.given_up, 0U);
  EXPECT_GT(counts.succeeded, 50U);
}

/// Also the loss of the node that has taken the place.
TEST(RecoverySimulation, EveryOrderOfTwoLostNodesOrRanksEnds) {
  WorldOptions options;
  options.nodes = {0, 1};
  options.steps = 1;
  options.spare_nodes = 2;
  options.joins_local_steps = true;
  const ExhaustiveCounts counts = explore(options, 2, {Kind::crash, Kind::lose_node, Kind::drain_node});
  std::printf(
      "2 ranks on 2 nodes, 2 more nodes, 1 step, 2 lost nodes or ranks: %llu states, %llu transitions\n",
      static_cast<unsigned long long>(counts.states), static_cast<unsigned long long>(counts.transitions));
  EXPECT_EQ(counts.violation, "");
  EXPECT_GT(counts.succeeded, 100U);
  EXPECT_GT(counts.given_up, 0U) << "both ranks may be lost";
}

/// Two crashes of three ranks, of the spare while it is called too, are 4 million states: by hand.
TEST(RecoverySimulation, EveryOrderOfOneFaultWithASpareRecovers) {
  WorldOptions options;
  options.nodes = {0, 0};
  options.steps = 2;
  options.joins_local_steps = true;
  options.recovery.spares = 1;
  const ExhaustiveCounts counts = explore(options, 1, {Kind::crash, Kind::pause, Kind::glitch});
  std::printf("2 ranks, 1 spare, 2 steps, 1 fault: %llu states, %llu transitions\n",
              static_cast<unsigned long long>(counts.states),
              static_cast<unsigned long long>(counts.transitions));
  EXPECT_EQ(counts.violation, "");
  EXPECT_EQ(counts.given_up, 0U);
  EXPECT_GT(counts.succeeded, 50U);
}

/// Also one that SIGKILL does not end: the round gives up instead of waiting.
TEST(RecoverySimulation, EveryOrderOfAHangWithASpareAndOneRecoveryEnds) {
  WorldOptions options;
  options.nodes = {0, 0};
  options.steps = 2;
  options.joins_local_steps = true;
  options.recovery.spares = 1;
  options.recovery.max_recoveries = 1;
  const ExhaustiveCounts hung = explore(options, 1, {Kind::hang});
  EXPECT_EQ(hung.violation, "");
  EXPECT_EQ(hung.given_up, 0U);
  EXPECT_GT(hung.succeeded, 10U);
  const ExhaustiveCounts stuck = explore(options, 1, {Kind::stick});
  std::printf("2 ranks, 1 spare, 1 recovery, 1 hang: %llu and %llu states\n",
              static_cast<unsigned long long>(hung.states), static_cast<unsigned long long>(stuck.states));
  EXPECT_EQ(stuck.violation, "");
  EXPECT_GT(stuck.given_up, 0U);
}

/// Without staging, the loss of the source while it sends leaves nobody with the state.
TEST(RecoverySimulation, LossOfTheOnlySourceEndsWithAReason) {
  WorldOptions options;
  options.nodes = {0, 0};
  options.steps = 2;
  options.joins_local_steps = true;
  options.stages_transfers = false;
  const ExhaustiveCounts counts = explore(options, 2, {Kind::crash});
  EXPECT_EQ(counts.violation, "");
  EXPECT_GT(counts.given_up, 0U);
}

}  // namespace
}  // namespace lockstep::elastic
