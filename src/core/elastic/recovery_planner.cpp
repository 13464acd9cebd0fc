#include "core/elastic/recovery_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/time.hpp"

namespace lockstep::elastic {
namespace {

using Kind = HeldState::Kind;

/// A rank whose new processes end so often during one recovery is not started again.
constexpr int kMostProcesses = 3;
/// So many losses in a row without a new step between them end the training. A sample that ends every process
/// would otherwise do so for ever.
constexpr int kMostRepeats = 3;

std::string describe(const HeldState& held) {
  switch (held.kind) {
    case Kind::none:
      return "without state";
    case Kind::clean:
      return fmt::format("at step {}", held.step);
    case Kind::torn:
      return fmt::format("in the middle of the update of step {}", held.step);
  }
  return "";
}

}  // namespace

RecoveryPlanner::RecoveryPlanner(RecoveryOptions options, const std::vector<int>& nodes) : options_(options) {
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    members_.push_back({.process = {.rank = static_cast<int>(rank)}, .node = nodes[rank]});
}

RecoveryPlanner::Member* RecoveryPlanner::find(const RankProcess& process) {
  const auto found = std::ranges::find(members_, process, &Member::process);
  return found == members_.end() ? nullptr : &*found;
}

PlannerActions RecoveryPlanner::on_lost(const RankProcess& process, const std::string& why, Time now) {
  PlannerActions actions;
  Member* const member = find(process);
  if (is_over() || lose_spare(process, why, now, actions) || member == nullptr) return actions;
  const std::string text = describe(process) + " " + why;
  if (phase_ == Phase::training) begin(text, now, actions);
  if (!is_over()) replace(*member, text, now, actions);
  return actions;
}

PlannerActions RecoveryPlanner::on_node_lost(int node, const std::string& why, bool has_successor, Time now) {
  PlannerActions actions;
  std::vector<Member*> lost;
  std::vector<int> ranks;
  for (Member& member : members_) {
    if (member.node != node) continue;
    lost.push_back(&member);
    ranks.push_back(member.process.rank);
  }
  if (is_over() || lost.empty()) return actions;
  const std::string text = fmt::format("node {} {}, and with it {} {}", node, why,
                                       ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
  if (!has_successor) {
    cause_ = text;
    give_up("no node waits that could take its place", actions);
    return actions;
  }
  if (phase_ == Phase::training) begin(text, now, actions);
  if (is_over()) return actions;
  for (Member* const member : lost) {
    // Spares are lost with the node.
    member->spare.reset();
    member->spare_deadline = Time::max();
    renew(*member, now);
  }
  for (const Member* const member : lost) {
    if (!can_go_on(*member, text, actions)) return actions;
  }
  start_node(node, now, actions);
  return actions;
}

void RecoveryPlanner::start_node(int node, Time now, PlannerActions& actions) {
  StartNode start{.node = node, .processes = {}, .generation = generation_ + 1};
  for (Member& member : members_) {
    if (member.node != node) continue;
    member.leaves = false;
    member.deadline = now + options_.replacement_timeout + options_.lost_node_timeout;
    start.processes.push_back(member.process);
  }
  actions.emplace_back(std::move(start));
}

bool RecoveryPlanner::on_node_leaves(int node, const std::string& why, Time now, PlannerActions& actions) {
  const auto stays = [&](const Member& member) { return member.node != node; };
  if (phase_ != Phase::training || !has_recoveries_left() || std::ranges::none_of(members_, stays))
    return false;
  begin(fmt::format("node {} {}", node, why), now, actions);
  for (Member& member : members_) {
    if (stays(member)) continue;
    if (member.spare)
      actions.emplace_back(EndSpare{{.rank = member.process.rank, .process = *member.spare}, node});
    member.spare.reset();
    member.spare_deadline = Time::max();
    member.leaves = true;
    kill(member, "leaves with its node", now, actions);
  }
  return true;
}

PlannerActions RecoveryPlanner::on_suspect(Generation generation, const RankProcess& process,
                                           const std::string& why, Time now) {
  PlannerActions actions;
  if (phase_ != Phase::training || generation != generation_ || find(process) == nullptr) return actions;
  begin(fmt::format("{} lost a connection: {}", describe(process), why), now, actions);
  return actions;
}

PlannerActions RecoveryPlanner::on_hang(int rank, const std::string& why, Time now) {
  PlannerActions actions;
  if (phase_ != Phase::training) return actions;
  Member& member = members_.at(static_cast<std::size_t>(rank));
  begin(describe(member.process) + " " + why, now, actions);
  if (!is_over()) kill(member, why, now, actions);
  return actions;
}

/// Its end is awaited, but not for ever: a process that hangs in the kernel cannot be killed.
void RecoveryPlanner::kill(Member& member, const std::string& why, Time now, PlannerActions& actions) {
  member.status = Status::killed;
  member.deadline = now + options_.kill_timeout;
  actions.emplace_back(Kill{member.process, member.node, why});
}

PlannerActions RecoveryPlanner::on_parked(Generation generation, const RankProcess& process,
                                          const HeldState& held, Time now) {
  PlannerActions actions;
  Member* const member = find(process);
  if (is_over() || member == nullptr || generation != generation_ + 1) return actions;
  if (phase_ == Phase::training) begin(describe(process) + " left the training", now, actions);
  if (is_over() || (member->status != Status::running && member->status != Status::starting)) return actions;
  member->status = Status::parked;
  member->held = held;
  member->deadline = Time::max();
  publish_if_complete(now, actions);
  return actions;
}

PlannerActions RecoveryPlanner::on_finished(Generation generation, const RankProcess& process) {
  PlannerActions actions;
  Member* const member = find(process);
  if (phase_ != Phase::training || generation != generation_ || member == nullptr) return actions;
  member->status = Status::finished;
  if (std::ranges::any_of(members_, [](const Member& m) { return m.status != Status::finished; }))
    return actions;
  phase_ = Phase::over;
  actions.emplace_back(ConfirmFinish{generation_});
  end_spares(actions);
  return actions;
}

/// Begins a recovery: the generation ends for all, also for those that have finished and wait.
void RecoveryPlanner::begin(const std::string& why, Time now, PlannerActions& actions) {
  cause_ = why;
  if (options_.max_recoveries == 0) return give_up("recoveries are off (--max-recoveries 0)", actions);
  if (recoveries_ == options_.max_recoveries)
    return give_up(fmt::format("all {} recoveries (--max-recoveries) are used up", recoveries_), actions);
  if (members_.size() == 1) return give_up("there is no other rank that holds the state", actions);
  ++recoveries_;
  phase_ = Phase::parking;
  is_counted_ = false;
  actions.emplace_back(Revoke{generation_, why});
  for (Member& member : members_) {
    member.status = Status::running;
    member.held = {};
    member.deadline = now + options_.park_timeout;
    member.ended = 0;
    member.leaves = false;
  }
}

/// Starts the next process of a rank whose process has ended. The survivors keep parking meanwhile.
void RecoveryPlanner::replace(Member& member, const std::string& why, Time now, PlannerActions& actions) {
  const bool has_spare = member.spare.has_value();
  renew(member, now);
  if (!can_go_on(member, why, actions)) return;
  const auto still_runs = [&](const Member& other) {
    return other.node == member.node && other.status == Status::killed;
  };
  if (member.leaves) {
    // Its process is started with the others of the node.
    member.deadline = Time::max();
    if (std::ranges::none_of(members_, still_runs)) start_node(member.node, now, actions);
    return;
  }
  if (has_spare)
    actions.emplace_back(CallSpare{member.process, member.node, generation_ + 1});
  else
    actions.emplace_back(Replace{member.process, member.node, generation_ + 1});
}

/// Gives the rank its next process: its spare, if it has one.
void RecoveryPlanner::renew(Member& member, Time now) {
  ++member.ended;
  const std::optional<int> spare = std::exchange(member.spare, std::nullopt);
  if (spare) member.spares_ended = 0;
  member.process.process = spare ? *spare : ++member.last_process;
  member.status = Status::starting;
  member.held = {};
  // A spare that is still in its set-up began it earlier.
  const Time spare_deadline = std::exchange(member.spare_deadline, Time::max());
  member.deadline = std::min(now + options_.replacement_timeout, spare_deadline);
}

/// Whether the recovery makes sense with that new process; otherwise it has given up.
bool RecoveryPlanner::can_go_on(const Member& renewed, const std::string& why, PlannerActions& actions) {
  const bool survivors = std::ranges::any_of(members_, [](const Member& m) {
    return m.status == Status::running || (m.status == Status::parked && m.held.kind != Kind::none);
  });
  if (renewed.ended > kMostProcesses) {
    cause_ = why;
    give_up(fmt::format("{} processes of this rank ended during one recovery", renewed.ended), actions);
  } else if (!survivors) {
    cause_ = why;
    give_up("no rank is left that holds the state", actions);
  } else {
    count_repeats(actions);
  }
  return !is_over();
}

PlannerActions RecoveryPlanner::start_spares(Time now) {
  PlannerActions actions;
  add_spares(now, actions);
  return actions;
}

/// Each rank that should have a spare and has none gets one, as long as it could be called.
void RecoveryPlanner::add_spares(Time now, PlannerActions& actions) {
  if (!has_recoveries_left()) return end_spares(actions);
  std::map<int, int> of_node;
  for (Member& member : members_) {
    if (of_node[member.node]++ >= options_.spares || member.spare || member.spares_ended >= kMostProcesses)
      continue;
    member.spare = ++member.last_process;
    member.spare_deadline = now + options_.replacement_timeout;
    actions.emplace_back(StartSpare{{.rank = member.process.rank, .process = *member.spare}, member.node});
  }
}

void RecoveryPlanner::end_spares(PlannerActions& actions) {
  for (const Member& member : members_) {
    if (member.spare)
      actions.emplace_back(EndSpare{{.rank = member.process.rank, .process = *member.spare}, member.node});
  }
  for (Member& member : members_) {
    member.spare.reset();
    member.spare_deadline = Time::max();
  }
}

std::vector<RankProcess> RecoveryPlanner::spares() const {
  std::vector<RankProcess> result;
  for (const Member& member : members_) {
    if (member.spare) result.push_back({.rank = member.process.rank, .process = *member.spare});
  }
  return result;
}

RecoveryPlanner::Member* RecoveryPlanner::find_spare(const RankProcess& process) {
  const auto found = std::ranges::find_if(members_, [&](const Member& member) {
    return member.process.rank == process.rank && member.spare == process.process;
  });
  return found == members_.end() ? nullptr : &*found;
}

void RecoveryPlanner::on_spare_ready(const RankProcess& process) {
  if (Member* const member = find_spare(process)) member->spare_deadline = Time::max();
}

/// Whether the process is a spare that was not called, and has ended.
bool RecoveryPlanner::lose_spare(const RankProcess& process, const std::string& why, Time now,
                                 PlannerActions& actions) {
  Member* const found = find_spare(process);
  if (found == nullptr) return false;
  found->spare.reset();
  found->spare_deadline = Time::max();
  const bool is_last = ++found->spares_ended >= kMostProcesses;
  actions.emplace_back(
      TellOfSpare{process, why + (is_last ? ", as those before it: the rank gets no other" : "")});
  // Nothing disturbs a recovery under way.
  if (phase_ == Phase::training) add_spares(now, actions);
  return true;
}

PlannerActions RecoveryPlanner::on_timer(Time now) {
  PlannerActions actions;
  for (Member& member : members_) {
    if (is_over()) break;
    if (now >= member.spare_deadline) {
      const RankProcess spare{.rank = member.process.rank, .process = *member.spare};
      actions.emplace_back(EndSpare{spare, member.node});
      lose_spare(spare, late_set_up() + ": killing it", now, actions);
    }
    if (now < member.deadline) continue;
    if (member.status == Status::killed) {
      give_up(fmt::format("{} has not ended {} after SIGKILL", describe(member.process),
                          format_seconds(options_.kill_timeout)),
              actions);
      continue;
    }
    const std::string late =
        fmt::format("has not left its training {} after the start of the recovery (--recovery-timeout)",
                    format_seconds(options_.park_timeout));
    if (member.status == Status::running && !has_source()) {
      give_up(fmt::format("{} {}, and no other rank holds a whole state, so that it is not killed",
                          describe(member.process), late),
              actions);
      continue;
    }
    const std::string why = member.status == Status::running ? late : late_set_up();
    kill(member, why, now, actions);
  }
  return actions;
}

std::string RecoveryPlanner::late_set_up() const {
  return fmt::format("has not finished its set-up, up to run_elastic(), {} after its start",
                     format_seconds(options_.replacement_timeout));
}

/// Whether a rank has parked with a state that the others can take.
bool RecoveryPlanner::has_source() const {
  return std::ranges::any_of(members_, [](const Member& member) {
    return member.status == Status::parked && member.held.kind == Kind::clean;
  });
}

RecoveryPlanner::Time RecoveryPlanner::deadline() const {
  Time next = Time::max();
  if (is_over()) return next;
  for (const Member& member : members_) next = std::min({next, member.deadline, member.spare_deadline});
  return next;
}

/// How far the ranks that trained have come, once all of them that are left have parked: new processes bring
/// nothing that would change it.
void RecoveryPlanner::count_repeats(PlannerActions& actions) {
  if (is_counted_) return;
  const Member* newest = nullptr;
  for (const Member& member : members_) {
    if (member.status == Status::running || member.status == Status::killed) return;
    if (member.status != Status::parked || member.held.kind != Kind::clean) continue;
    if (newest == nullptr || member.held.step > newest->held.step) newest = &member;
  }
  if (newest == nullptr) return;
  is_counted_ = true;
  repeats_ = best_step_ && newest->held.step <= *best_step_ ? repeats_ + 1 : 1;
  if (repeats_ < kMostRepeats) return;
  give_up(fmt::format("{} losses in a row without a new step, the last in step {}", repeats_, *best_step_),
          actions);
}

void RecoveryPlanner::publish_if_complete(Time now, PlannerActions& actions) {
  count_repeats(actions);
  if (is_over()) return;
  if (std::ranges::any_of(members_, [](const Member& m) { return m.status != Status::parked; })) return;
  std::string reason;
  std::optional<RecoveryPlan> plan = choose_state(reason);
  if (!plan) return give_up(reason, actions);
  best_step_ = std::max(best_step_.value_or(0), plan->step);
  phase_ = Phase::training;
  plan->generation = ++generation_;
  for (Member& member : members_) {
    plan->members.push_back(member.process);
    member.status = Status::running;
  }
  actions.emplace_back(Publish{std::move(*plan)});
  add_spares(now, actions);
}

/// From whom the state comes: the newest clean state. Everybody who does not hold that state
/// receives it. A torn state is never taken, not even if every optimizer has stepped: what the program does
/// between the last of them and the commit (an average of weights, a count, a line of a log) is not known to
/// have happened.
std::optional<RecoveryPlan> RecoveryPlanner::choose_state(std::string& reason) const {
  const Member* newest = nullptr;
  const Member* oldest = nullptr;
  const Member* torn = nullptr;
  for (const Member& member : members_) {
    const HeldState& held = member.held;
    if (held.kind == Kind::clean) {
      if (newest == nullptr || held.step > newest->held.step) newest = &member;
      if (oldest == nullptr || held.step < oldest->held.step) oldest = &member;
    } else if (held.kind == Kind::torn) {
      if (torn == nullptr) torn = &member;
    }
  }
  RecoveryPlan plan;
  if (newest != nullptr) {
    if (newest->held.step - oldest->held.step > 1) {
      reason = fmt::format(
          "{} is at step {}, but {} at step {}: each step must contain a collective of all ranks",
          describe(newest->process), newest->held.step, describe(oldest->process), oldest->held.step);
      return std::nullopt;
    }
    plan.source = newest->process.rank;
    plan.step = newest->held.step;
  } else {
    reason = torn == nullptr ? std::string("no rank holds the whole state")
                             : fmt::format(
                                   "{} was {}, and no other rank holds a whole state: commit a step before "
                                   "anything else that communicates",
                                   describe(torn->process), describe(torn->held));
    return std::nullopt;
  }
  const HeldState& wanted = members_[static_cast<std::size_t>(plan.source)].held;
  for (const Member& member : members_) {
    if (member.held != wanted) plan.receivers.push_back(member.process.rank);
  }
  return plan;
}

void RecoveryPlanner::give_up(const std::string& reason, PlannerActions& actions) {
  phase_ = Phase::over;
  actions.emplace_back(
      GiveUp{cause_.empty() ? reason : fmt::format("{}; the ranks are not recovered: {}", cause_, reason)});
}

std::string_view RecoveryPlanner::status_text(Status status) const {
  switch (status) {
    case Status::running:
      return phase_ == Phase::parking ? "has not parked" : "is training";
    case Status::finished:
      return "has finished";
    case Status::parked:
      return "has parked";
    case Status::killed:
      return "is being killed";
    case Status::starting:
      return "is being started";
  }
  return "";
}

std::string RecoveryPlanner::describe_state() const {
  std::string text =
      fmt::format("generation {} {} ({} recoveries, {} without a new step)", generation_,
                  phase_ == Phase::training ? "is training" : (is_over() ? "is over" : "is revoked"),
                  recoveries_, repeats_);
  for (const Member& member : members_) {
    text += fmt::format("; {} {}", describe(member.process), status_text(member.status));
    if (member.status == Status::parked) text += " " + describe(member.held);
    if (member.spare)
      text += fmt::format(", spare {}{}", *member.spare,
                          member.spare_deadline == Time::max() ? "" : " in its set-up");
    if (member.leaves) text += ", leaves";
    if (member.spares_ended > 0) text += fmt::format(", {} spares ended", member.spares_ended);
    if (member.ended > 0) text += fmt::format(", {} of its processes ended", member.ended);
  }
  return text;
}

}  // namespace lockstep::elastic
