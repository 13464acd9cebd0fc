#include "recovery/recovery_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::elastic {
namespace {

std::vector<std::uint64_t> undisturbed(std::uint64_t steps, int size) {
  std::vector<std::uint64_t> weights{1};
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::uint64_t reduced = 0;
    for (int rank = 0; rank < size; ++rank)
      reduced = mix(reduced, gradient(weights.back(), step, step, rank));
    weights.push_back(update(weights.back(), reduced));
  }
  return weights;
}

}  // namespace

std::string Choice::describe() const {
  constexpr const char* kNames[] = {"run",    "fail",      "hear revoked", "hear plan", "report", "command",
                                    "event",  "fence",     "resume",       "timer",     "CRASH",  "PAUSE",
                                    "GLITCH", "LOSE NODE", "DRAIN NODE",   "HURRY",     "HANG",   "STICK"};
  return fmt::format("{} {}", kNames[static_cast<int>(kind)], index);
}

World::World(WorldOptions options)
    : options_(std::move(options)),
      planner_(options_.recovery, options_.nodes),
      reference_(undisturbed(options_.steps, size())) {
  RecoveryPlan first;
  first.generation = 1;
  first.step = options_.first_step;
  const State state{reference_[options_.first_step], options_.first_step};
  for (int rank = 0; rank < size(); ++rank) {
    const RankProcess self{.rank = rank};
    first.members.push_back(self);
    processes_.push_back({.member = Member(self, options_.first_step),
                          .node = options_.nodes[static_cast<std::size_t>(rank)],
                          .state = state,
                          .committed = options_.first_step});
    processes_.back().member.stage_transfers(options_.stages_transfers);
  }
  groups_[1].plan = first;
  groups_[1].transfers.resize(options_.nodes.size());
  nodes_.resize(static_cast<std::size_t>(*std::ranges::max_element(options_.nodes)) + 1);
  places_.resize(nodes_.size());
  std::iota(places_.begin(), places_.end(), 0);
  waiting_nodes_ = options_.spare_nodes;
  if (options_.first_step > 0) checkpoint_ = options_.first_step;
  for (int rank = 0; rank < size(); ++rank)
    carry_out(rank, processes_[static_cast<std::size_t>(rank)].member.begin_step());
  carry_out(planner_.start_spares(now_));
}

void World::violate(const std::string& invariant, const std::string& details) {
  if (!violation_) violation_ = Violation{invariant, details + "\n" + describe()};
}

int World::current(const RankProcess& process) const {
  for (std::size_t i = processes_.size(); i-- > 0;) {
    if (processes_[i].member.self() == process) return static_cast<int>(i);
  }
  return -1;
}

bool World::has_succeeded() const {
  if (!finish_confirmed_) return false;
  int left = 0;
  for (const Process& process : processes_) left += process.member.has_left() && !is_cut_off(process) ? 1 : 0;
  return left >= size();
}

bool World::in_collective(const Process& process) const {
  switch (process.position) {
    case Position::enter:
    case Position::wait:
    case Position::enter_again:
    case Position::wait_again:
    case Position::join:
    case Position::joined:
    case Position::receive:
      return true;
    default:
      return false;
  }
}

/// Whether others may count on what it has contributed, so that its collective may still complete.
bool World::has_entered(const Process& process) const {
  return process.position == Position::wait || process.position == Position::wait_again ||
         process.position == Position::joined || process.position == Position::receive;
}

/// A peer of its group that is dead, which the group's own watch notices, or that does not answer. Between a
/// lost node and the others nothing may arrive.
bool World::has_lost_peer(const Process& process) const {
  return std::ranges::any_of(group(process).plan.members, [&](const RankProcess& peer) {
    const Process& other = processes_[static_cast<std::size_t>(current(peer))];
    return !other.alive || other.paused || is_cut_off(other) != is_cut_off(process);
  });
}

bool World::can_run(const Process& process) const {
  switch (process.position) {
    case Position::enter:
    case Position::enter_again:
    case Position::join:
      return !process.member.is_revoked();
    // What has arrived may complete, even if the group is aborted in the same moment.
    case Position::wait:
    case Position::wait_again:
      return std::ranges::all_of(group(process).collectives[process.collective], &Contribution::made);
    case Position::joined:
      return static_cast<int>(group(process).joined.size()) == size();
    case Position::receive:
      return group(process).transfers[static_cast<std::size_t>(process.member.self().rank)].has_value();
    case Position::spare:
      return !is_waiting_spare(process);
    case Position::idle:
      return false;
    default:
      return true;
  }
}

std::vector<Choice> World::choices() const {
  using enum Choice::Kind;
  std::vector<Choice> result;
  std::vector<Choice> rare;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    const int index = static_cast<int>(i);
    const bool reachable = !is_cut_off(process);
    // For a search: of a lost node others see no more than what its ranks contribute. See apply().
    if (!reachable && options_.joins_local_steps) {
      if (process.alive && !process.paused && can_run(process)) result.push_back({run, index});
      continue;
    }
    if (!process.reports.empty()) result.push_back({report, index});
    if (!process.alive) continue;
    if (!finish_confirmed_ && reachable) result.push_back({crash, index});
    if (process.paused) {
      if (!process.stuck) rare.push_back({resume, index});
      continue;
    }
    if (!finish_confirmed_ && reachable) result.push_back({pause, index});
    if (!planner_.is_recovering() && !planner_.is_over() && !is_waiting_spare(process) && reachable) {
      result.push_back({hang, index});
      result.push_back({stick, index});
    }
    if (can_run(process)) result.push_back({run, index});
    if (in_collective(process)) {
      if (process.member.is_revoked() || has_lost_peer(process))
        result.push_back({fail, index});
      else if (reachable)
        result.push_back({glitch, index});
    }
    if (!process.revoked.empty()) result.push_back({hear_revoked, index});
    if (!process.plans.empty()) result.push_back({hear_plan, index});
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].lost) {
      const bool runs = std::ranges::any_of(processes_, [&](const Process& process) {
        return process.alive && process.node == static_cast<int>(i);
      });
      if (runs && !options_.joins_local_steps) result.push_back({fence, static_cast<int>(i)});
      continue;
    }
    if (!nodes_[i].commands.empty()) result.push_back({command, static_cast<int>(i)});
    if (!nodes_[i].ended.empty()) result.push_back({event, static_cast<int>(i)});
    const bool takes_part = number_of(static_cast<int>(i)).has_value();
    if (finish_confirmed_ || !takes_part) continue;
    result.push_back({lose_node, static_cast<int>(i)});
    if (waiting_nodes_ > 0 && !planner_.is_recovering()) result.push_back({drain_node, static_cast<int>(i)});
  }
  const bool idle = std::ranges::all_of(result, &Choice::is_fault);
  if (planner_.deadline() != RecoveryPlanner::Time::max()) {
    if (idle)
      rare.push_back({timer, 0});
    else
      result.push_back({hurry, 0});
  }
  result.insert(result.end(), rare.begin(), rare.end());
  return result;
}

bool World::is_local(const Process& process) const {
  switch (process.position) {
    case Position::set_up:
    case Position::optimizer:
    case Position::commit:
      return true;
    case Position::spare:
      return !is_waiting_spare(process);
    case Position::enter:
    case Position::enter_again:
    case Position::join:
      return !process.member.is_revoked();
    default:
      return false;
  }
}

/// An older generation, or one that is revoked already, stays so.
void World::drop_stale() {
  const auto is_old = [&](Generation generation) {
    return planner_.is_over() || generation < planner_.generation() ||
           (generation == planner_.generation() && planner_.is_recovering());
  };
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    const Member& member = process.member;
    std::erase_if(process.revoked, [&](const Revoked& notice) {
      return notice.generation < member.generation() ||
             (notice.generation == member.generation() && member.is_revoked());
    });
    std::erase_if(process.plans, [&](const PlanNotice& notice) {
      return std::visit(
          Overloaded{[&](const RecoveryPlan& plan) { return plan.generation <= member.generation(); },
                     [&](const Finished& f) { return f.generation < member.generation(); }},
          notice);
    });
    const bool is_replaced = std::any_of(
        processes_.begin() + static_cast<std::ptrdiff_t>(i) + 1, processes_.end(), [&](const Process& later) {
          return later.member.self().rank == member.self().rank && !is_waiting_spare(later);
        });
    std::erase_if(process.reports, [&](const Report& report) {
      return is_replaced ||
             std::visit(
                 Overloaded{[&](const ReportParked& r) { return r.generation <= planner_.generation(); },
                            [&](const auto& r) { return is_old(r.generation); }},
                 report);
    });
  }
}

void World::apply(const Choice& choice) {
  apply_one(choice);
  if (!options_.joins_local_steps) return;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    while (!nodes_[i].lost && !nodes_[i].commands.empty()) execute_command(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const auto runs = [&] { return processes_[i].alive && !processes_[i].paused; };
    while (runs() && is_local(processes_[i])) run(static_cast<int>(i));
    if (runs() && processes_[i].member.is_revoked() && in_collective(processes_[i]) &&
        !has_entered(processes_[i]))
      apply_one({Choice::Kind::fail, static_cast<int>(i)});
  }
  // Processes of a lost node end when nobody is left who could still count on what they contribute.
  for (Process& lost : processes_) {
    if (!lost.alive || !is_cut_off(lost)) continue;
    lost.reports.clear();
    lost.revoked.clear();
    lost.plans.clear();
    const bool is_awaited = std::ranges::any_of(processes_, [&](const Process& other) {
      return other.alive && !is_cut_off(other) && !is_waiting_spare(other) && in_collective(other) &&
             other.member.generation() == lost.member.generation();
    });
    const bool may_be = std::ranges::any_of(processes_, [&](const Process& other) {
      return other.alive && !is_cut_off(other) && other.member.is_training() && !other.member.is_revoked() &&
             other.member.generation() == lost.member.generation();
    });
    lost.alive = !is_waiting_spare(lost) && (is_awaited || may_be);
  }
  drop_stale();
}

void World::apply_one(const Choice& choice) {
  using enum Choice::Kind;
  const auto index = static_cast<std::size_t>(choice.index);
  switch (choice.kind) {
    case run:
      return World::run(choice.index);
    case fail:
    case glitch:
      return carry_out(choice.index, processes_[index].member.on_unwound("connection reset"));
    case hear_revoked: {
      const Revoked notice = processes_[index].revoked.front();
      processes_[index].revoked.erase(processes_[index].revoked.begin());
      return carry_out(choice.index, processes_[index].member.on_revoked(notice.generation, notice.why));
    }
    case hear_plan: {
      const PlanNotice notice = processes_[index].plans.front();
      processes_[index].plans.erase(processes_[index].plans.begin());
      Member& member = processes_[index].member;
      return carry_out(choice.index,
                       std::visit(Overloaded{[&](const RecoveryPlan& plan) { return member.on_plan(plan); },
                                             [&](const Finished& finished) {
                                               return member.on_finish_confirmed(finished.generation);
                                             }},
                                  notice));
    }
    case report:
      return hear_report(choice.index);
    case command:
      return execute_command(choice.index);
    case event: {
      const RankProcess process = nodes_[index].ended.front();
      nodes_[index].ended.erase(nodes_[index].ended.begin());
      const bool is_spare = is_waiting_spare(processes_[static_cast<std::size_t>(current(process))]);
      // A failure after the training is not recovered: others may have left already.
      if (finish_confirmed_ && !verdict_ && !is_spare)
        verdict_ = elastic::describe(process) + " failed after the training";
      return carry_out(planner_.on_lost(process, "was killed by SIGKILL", now_));
    }
    case fence:
      return stop_node(choice.index);
    case resume:
      processes_[index].paused = false;
      return;
    case pause:
      processes_[index].paused = true;
      return;
    case stick:
      processes_[index].stuck = true;
      [[fallthrough]];
    case hang:
      processes_[index].paused = true;
      return carry_out(planner_.on_hang(processes_[index].member.self().rank, "makes no progress", now_));
    case crash:
      ++crashes_;
      return end(choice.index);
    case lose_node:
      return World::lose_node(choice.index);
    case drain_node: {
      PlannerActions actions;
      if (planner_.on_node_leaves(*number_of(choice.index), "is asked to end", now_, actions))
        leaving_ = choice.index;
      return carry_out(actions);
    }
    case hurry:
      hurried_ = true;
      [[fallthrough]];
    case timer:
      now_ = std::max(now_, planner_.deadline());
      return carry_out(planner_.on_timer(now_));
  }
}

std::optional<int> World::number_of(int index) const {
  const auto found = std::ranges::find(places_, index);
  return found == places_.end() ? std::nullopt : std::optional(static_cast<int>(found - places_.begin()));
}

void World::lose_node(int index) {
  nodes_[static_cast<std::size_t>(index)].lost = true;
  const int number = *number_of(index);
  lost_with_nodes_ += static_cast<int>(std::ranges::count(options_.nodes, number));
  carry_out(planner_.on_node_lost(number, "closed its connection", waiting_nodes_ > 0, now_));
}

void World::end(int index) {
  Process& process = processes_[static_cast<std::size_t>(index)];
  process.alive = false;
  process.revoked.clear();
  process.plans.clear();
  nodes_[static_cast<std::size_t>(process.node)].ended.push_back(process.member.self());
}

void World::stop_node(int node) {
  for (Process& process : processes_) {
    if (process.node == node) process.alive = false;
  }
}

bool World::has_left(int node) const {
  const auto left = std::ranges::count_if(
      processes_, [&](const Process& process) { return process.node == node && process.member.has_left(); });
  return finish_confirmed_ && left == std::ranges::count(options_.nodes, node);
}

}  // namespace lockstep::elastic
