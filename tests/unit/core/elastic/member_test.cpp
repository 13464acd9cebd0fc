#include "core/elastic/member.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::elastic {
namespace {

using Kind = HeldState::Kind;

template <class Action>
const Action* find(const MemberActions& actions) {
  for (const auto& action : actions) {
    if (const auto* found = std::get_if<Action>(&action)) return found;
  }
  return nullptr;
}

/// Two ranks in generation 2, at step 4; rank 0 sends to rank 1.
RecoveryPlan plan_of_two() {
  RecoveryPlan plan;
  plan.generation = 2;
  plan.members = {{0, 0}, {1, 0}};
  plan.source = 0;
  plan.receivers = {1};
  plan.step = 4;
  return plan;
}

TEST(Member, StepIsCleanUntilTheFirstOptimizerAndAfterTheCommit) {
  Member member({0, 0}, 3);
  EXPECT_NE(find<KeepAside>(member.begin_step()), nullptr);
  EXPECT_EQ(member.held(), (HeldState{Kind::clean, 3}));
  for (int i = 0; i < 2; ++i) {
    member.on_optimizer_step();
    EXPECT_EQ(member.held(), (HeldState{Kind::torn, 3}));
  }
  EXPECT_NE(find<DropKept>(member.commit()), nullptr);
  EXPECT_EQ(member.held(), (HeldState{Kind::clean, 4}));
}

TEST(Member, FailedCollectiveRestoresTheLastCommitAndParks) {
  Member member({0, 0}, 3);
  static_cast<void>(member.begin_step());
  const MemberActions actions = member.on_unwound("connection reset");
  ASSERT_NE(find<ReportSuspect>(actions), nullptr);
  EXPECT_EQ(find<ReportSuspect>(actions)->generation, 1U);
  EXPECT_TRUE(find<DiscardStep>(actions)->restore);
  EXPECT_EQ(find<ReportParked>(actions)->generation, 2U);
  EXPECT_EQ(find<ReportParked>(actions)->held, (HeldState{Kind::clean, 3}));
}

TEST(Member, RevokedRankAbortsAtOnceAndSuspectsNobody) {
  Member member({0, 0}, 3);
  static_cast<void>(member.begin_step());
  EXPECT_NE(find<AbortGroup>(member.on_revoked(1, "rank 1 was killed")), nullptr);
  EXPECT_TRUE(member.on_revoked(1, "again").empty());
  // Until its next collective it goes on, and may commit what is complete.
  member.on_optimizer_step();
  static_cast<void>(member.commit());
  const MemberActions actions = member.on_unwound("aborted");
  EXPECT_EQ(find<ReportSuspect>(actions), nullptr);
  EXPECT_FALSE(find<DiscardStep>(actions)->restore);
  EXPECT_EQ(find<ReportParked>(actions)->held, (HeldState{Kind::clean, 4}));
}

TEST(Member, ReceiverKeepsItsStateUntilItHasTheNewOneIfItStages) {
  for (const bool stages : {true, false}) {
    Member member({1, 0}, 3);
    member.stage_transfers(stages);
    static_cast<void>(member.on_unwound("connection reset"));
    EXPECT_NE(find<Reform>(member.on_plan(plan_of_two())), nullptr);
    ASSERT_NE(find<ReceiveState>(member.on_group_ready()), nullptr);
    EXPECT_EQ(member.held().kind, stages ? Kind::clean : Kind::none);
    const MemberActions actions = member.on_state_ready();
    ASSERT_NE(find<Enter>(actions), nullptr);
    EXPECT_EQ(find<Enter>(actions)->step, 4U);
    EXPECT_EQ(member.held(), (HeldState{Kind::clean, 4}));
  }
}

TEST(Member, SourceSendsAndEnters) {
  Member member({0, 0}, 4);
  static_cast<void>(member.on_unwound("connection reset"));
  static_cast<void>(member.on_plan(plan_of_two()));
  const MemberActions actions = member.on_group_ready();
  ASSERT_NE(find<SendState>(actions), nullptr);
  EXPECT_EQ(find<SendState>(actions)->receivers, (std::vector<int>{1}));
  EXPECT_EQ(find<Enter>(actions)->generation, 2U);
}

TEST(Member, PlanWithoutThisProcessIsTheEndOfIt) {
  Member member({1, 0}, 3);
  static_cast<void>(member.on_unwound("connection reset"));
  RecoveryPlan plan = plan_of_two();
  plan.members[1].process = 1;
  const MemberActions actions = member.on_plan(plan);
  ASSERT_NE(find<Leave>(actions), nullptr);
  EXPECT_EQ(find<Leave>(actions)->why, "rank 1 is no member of generation 2: it was replaced");
  EXPECT_TRUE(member.has_left());
}

TEST(Member, PlanThatWasRevokedBeforeItArrivedIsPassedOver) {
  Member member({1, 0}, 3);
  static_cast<void>(member.on_unwound("connection reset"));
  const MemberActions actions = member.on_revoked(2, "rank 0 was killed");
  ASSERT_NE(find<ReportParked>(actions), nullptr);
  EXPECT_EQ(find<ReportParked>(actions)->generation, 3U);
  EXPECT_TRUE(member.on_plan(plan_of_two()).empty());
}

TEST(Member, FinishedRankParksAgainWhenOthersNeedIt) {
  Member member({0, 0}, 4);
  EXPECT_NE(find<ReportFinished>(member.on_body_returned()), nullptr);
  const MemberActions actions = member.on_revoked(1, "rank 1 was killed");
  EXPECT_EQ(find<ReportParked>(actions)->held, (HeldState{Kind::clean, 4}));
  EXPECT_TRUE(member.on_finish_confirmed(1).empty());
  static_cast<void>(member.on_plan(plan_of_two()));
  static_cast<void>(member.on_group_ready());
  EXPECT_NE(find<ReportFinished>(member.on_body_returned()), nullptr);
  const MemberActions end = member.on_finish_confirmed(2);
  ASSERT_NE(find<Leave>(end), nullptr);
  EXPECT_EQ(find<Leave>(end)->why, "");
}

/// A program moves its loaders and schedules at the end of an epoch, after the last commit.
TEST(Member, FinishedRankThatIsNeededUndoesWhatFollowedItsLastCommit) {
  Member member({0, 0}, 4);
  static_cast<void>(member.begin_step());
  EXPECT_EQ(find<DropKept>(member.on_body_returned()), nullptr);
  const MemberActions actions = member.on_revoked(1, "rank 1 was killed");
  ASSERT_NE(find<DiscardStep>(actions), nullptr);
  EXPECT_TRUE(find<DiscardStep>(actions)->restore);
  Member other({0, 0}, 4);
  static_cast<void>(other.begin_step());
  static_cast<void>(other.on_body_returned());
  EXPECT_NE(find<DropKept>(other.on_finish_confirmed(1)), nullptr);
}

TEST(Member, ReplacementParksWithoutStateForItsGeneration) {
  Member member = Member::replacement({1, 1}, 2);
  const MemberActions actions = member.on_ready();
  EXPECT_EQ(find<ReportParked>(actions)->generation, 2U);
  EXPECT_EQ(find<ReportParked>(actions)->held.kind, Kind::none);
}

TEST(Member, MistakesOfTheProgramAreNamed) {
  Member member({0, 0}, 3);
  EXPECT_THROW(static_cast<void>(member.commit()), UsageError);
  EXPECT_THROW(member.on_optimizer_step(), UsageError);
  static_cast<void>(member.begin_step());
  EXPECT_THROW(static_cast<void>(member.begin_step()), UsageError);
  member.on_optimizer_step();
  try {
    static_cast<void>(member.on_body_returned());
    FAIL() << "expected a UsageError";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0: the training ended in the middle of step 3: call commit after the optimizers");
  }
}

}  // namespace
}  // namespace lockstep::elastic
