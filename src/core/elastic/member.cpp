#include "core/elastic/member.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::elastic {

using Kind = HeldState::Kind;

Member::Member(RankProcess self, std::uint64_t step)
    : self_(self), held_{.kind = Kind::clean, .step = step} {}

Member Member::replacement(RankProcess self, Generation generation) {
  Member member(self, 0);
  member.phase_ = Phase::set_up;
  member.generation_ = generation - 1;
  member.held_ = {};
  return member;
}

/// An event that cannot happen in this phase is a mistake of the caller.
void Member::refuse(const char* event) const {
  throw UsageError(fmt::format("{} is not possible now: {}", event, describe_state()));
}

MemberActions Member::on_ready() {
  if (phase_ != Phase::set_up) refuse("on_ready");
  MemberActions actions;
  park(actions);
  return actions;
}

MemberActions Member::begin_step() {
  if (phase_ != Phase::training || held_.kind != Kind::clean || in_step_) refuse("begin_step");
  in_step_ = true;
  return {KeepAside{}};
}

void Member::on_optimizer_step() {
  if (phase_ != Phase::training || !in_step_) refuse("optimizer.step()");
  held_.kind = Kind::torn;
}

/// A step without an update (a loss scale that was too large) is a step as well.
MemberActions Member::commit() {
  if (phase_ != Phase::training || !in_step_) refuse("commit");
  held_ = {.kind = Kind::clean, .step = held_.step + 1};
  in_step_ = false;
  return {DropKept{}};
}

MemberActions Member::on_body_returned() {
  if (phase_ != Phase::training) refuse("the end of the training");
  if (held_.kind == Kind::torn)
    throw UsageError(
        fmt::format("rank {}: the training ended in the middle of step {}: call commit after the "
                    "optimizers",
                    self_.rank, held_.step));
  MemberActions actions;
  // What was kept stays: what the program has done since the last commit is undone if the others need help.
  if (revoked_) {
    park(actions);
    return actions;
  }
  phase_ = Phase::finished;
  actions.emplace_back(ReportFinished{generation_});
  return actions;
}

MemberActions Member::on_revoked(Generation generation, const std::string& why) {
  MemberActions actions;
  if (phase_ == Phase::left || phase_ == Phase::set_up || generation < generation_) return actions;
  if (phase_ == Phase::parked) {
    // The plan that this rank waits for was published and revoked before it arrived here.
    if (generation == generation_) return actions;
    generation_ = generation;
    park(actions);
    return actions;
  }
  if (generation != generation_ || revoked_) return actions;
  revoked_ = true;
  actions.emplace_back(AbortGroup{why});
  if (phase_ == Phase::finished) park(actions);
  return actions;
}

MemberActions Member::on_unwound(const std::string& why) {
  if (phase_ != Phase::training && phase_ != Phase::joining) refuse("a failed communication");
  MemberActions actions;
  if (!revoked_) actions.emplace_back(ReportSuspect{generation_, why});
  park(actions);
  return actions;
}

/// What was kept aside belongs to the state of the last commit: it is put back if that state is still there.
void Member::park(MemberActions& actions) {
  actions.emplace_back(DiscardStep{.restore = in_step_ && held_.kind == Kind::clean});
  in_step_ = false;
  plan_.reset();
  revoked_ = true;
  phase_ = Phase::parked;
  actions.emplace_back(ReportParked{generation_ + 1, held_});
}

MemberActions Member::on_plan(const RecoveryPlan& plan) {
  MemberActions actions;
  if (phase_ != Phase::parked || plan.generation <= generation_) return actions;
  const auto rank = static_cast<std::size_t>(self_.rank);
  if (plan.generation > generation_ + 1 || rank >= plan.members.size() || plan.members[rank] != self_) {
    phase_ = Phase::left;
    actions.emplace_back(Leave{
        fmt::format("{} is no member of generation {}: it was replaced", describe(self_), plan.generation)});
    return actions;
  }
  phase_ = Phase::joining;
  generation_ = plan.generation;
  revoked_ = false;
  plan_ = plan;
  actions.emplace_back(Reform{plan});
  return actions;
}

MemberActions Member::on_group_ready() {
  if (phase_ != Phase::joining) refuse("on_group_ready");
  MemberActions actions;
  if (std::ranges::count(plan_->receivers, self_.rank) > 0) {
    // A torn state is of no use to anybody.
    if (!stages_ || held_.kind == Kind::torn) held_ = {};
    actions.emplace_back(ReceiveState{plan_->source});
    return actions;
  }
  held_ = {.kind = Kind::clean, .step = plan_->step};
  if (self_.rank == plan_->source && !plan_->receivers.empty())
    actions.emplace_back(SendState{plan_->receivers});
  enter(actions);
  return actions;
}

MemberActions Member::on_state_ready() {
  if (phase_ != Phase::joining) refuse("on_state_ready");
  MemberActions actions{DropKept{}};
  held_ = {.kind = Kind::clean, .step = plan_->step};
  enter(actions);
  return actions;
}

void Member::enter(MemberActions& actions) {
  phase_ = Phase::training;
  plan_.reset();
  actions.emplace_back(Enter{generation_, held_.step});
}

MemberActions Member::on_finish_confirmed(Generation generation) {
  if (phase_ != Phase::finished || generation != generation_) return {};
  phase_ = Phase::left;
  in_step_ = false;
  return {DropKept{}, Leave{}};
}

std::string Member::describe_state() const {
  constexpr const char* kPhases[] = {"in its set-up", "training", "finished", "parked", "joining", "left"};
  constexpr const char* kKinds[] = {"without state", "at step", "torn after step"};
  std::string text =
      fmt::format("{}: generation {}{}, {}, {}", describe(self_), generation_, revoked_ ? " (revoked)" : "",
                  kPhases[static_cast<int>(phase_)], kKinds[static_cast<int>(held_.kind)]);
  if (held_.kind != Kind::none) text += fmt::format(" {}", held_.step);
  if (in_step_) text += ", in a step";
  return text;
}

}  // namespace lockstep::elastic
