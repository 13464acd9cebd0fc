#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "recovery/recovery_world.hpp"

namespace lockstep::elastic {

void World::contribute(int index) {
  Process& process = processes_[static_cast<std::size_t>(index)];
  Group& group = World::group(process);
  const RankProcess& self = process.member.self();
  if (process.member.generation() != planner_.generation() && !is_cut_off(process))
    violate("generation",
            fmt::format("{} contributes to generation {}, but generation {} is planned",
                        elastic::describe(self), process.member.generation(), planner_.generation()));
  if (group.plan.members[static_cast<std::size_t>(self.rank)] != self)
    violate("group", elastic::describe(self) + " contributes to a group in which it is no member");
  const std::uint64_t step = process.member.held().step;
  if (group.collectives.size() <= process.collective)
    group.collectives.resize(process.collective + 1, std::vector<Contribution>(options_.nodes.size()));
  auto& contributions = group.collectives[process.collective];
  for (const Contribution& other : contributions) {
    if (other.made && (other.step != step || other.weights != process.state.weights))
      violate("group", fmt::format("{} contributes to step {}, another rank to step {}, of one collective",
                                   elastic::describe(self), step, other.step));
  }
  const std::uint64_t value = gradient(process.state.weights, process.state.loader - 1, step, self.rank);
  contributions[static_cast<std::size_t>(self.rank)] = {true, step, process.state.weights, value};
}

void World::run(int index) {
  Process& process = processes_[static_cast<std::size_t>(index)];
  Member& member = process.member;
  switch (process.position) {
    case Position::set_up:
      if (process.is_spare) {
        process.position = Position::spare;
        // It changes no more than a deadline, which may pass at any time (hurry).
        planner_.on_spare_ready(member.self());
        return;
      }
      process.position = Position::idle;
      return carry_out(index, member.on_ready());
    case Position::spare: {
      const RankProcess self = member.self();
      member = Member::replacement(self, calls_.at(self));
      member.stage_transfers(options_.stages_transfers);
      process.position = Position::idle;
      return carry_out(index, member.on_ready());
    }
    case Position::begin:
      if (member.held().step == options_.steps) {
        // What a program does at the end of an epoch belongs to no step.
        process.state.loader += options_.steps;
        process.position = Position::idle;
        return carry_out(index, member.on_body_returned());
      }
      ++process.state.loader;
      process.position = Position::enter;
      return;
    case Position::enter:
    case Position::enter_again:
      contribute(index);
      process.position = process.position == Position::enter ? Position::wait : Position::wait_again;
      return;
    case Position::wait: {
      process.reduced = 0;
      process.base = process.state.weights;
      for (const Contribution& contribution : group(process).collectives[process.collective])
        process.reduced = mix(process.reduced, contribution.value);
      ++process.collective;
      process.next_object = 0;
      process.position = Position::optimizer;
      return;
    }
    case Position::optimizer:
      member.on_optimizer_step();
      ++process.next_object;
      // Between its first and its last optimizer, a state is neither the old one nor the new one.
      if (process.next_object == options_.objects) {
        process.state.weights = update(process.base, process.reduced);
        process.position = options_.reduces_before_commit ? Position::enter_again : Position::commit;
      } else {
        process.state.weights = mix(process.state.weights, 7);
      }
      return;
    case Position::wait_again:
      ++process.collective;
      process.position = Position::commit;
      return;
    case Position::commit:
      carry_out(index, member.commit());
      carry_out(index, member.begin_step());
      process.position = Position::begin;
      return check_commit(process);
    case Position::join:
      group(process).joined.push_back(index);
      process.position = Position::joined;
      return;
    case Position::joined:
      process.position = Position::idle;
      return carry_out(index, member.on_group_ready());
    case Position::receive:
      process.state = *group(process).transfers[static_cast<std::size_t>(member.self().rank)];
      return carry_out(index, member.on_state_ready());
    case Position::idle:
      return;
  }
}

/// `process` has just committed a step.
void World::check_commit(Process& process) {
  const std::uint64_t step = process.member.held().step;
  const std::string who = elastic::describe(process.member.self());
  if (process.state.weights != reference_[step])
    violate("bits",
            fmt::format("{} committed step {} with other weights than the undisturbed run", who, step));
  if (process.state.loader != step)
    violate("bits",
            fmt::format("{} committed step {} with the loader at {}", who, step, process.state.loader));
  process.committed = std::max(process.committed, step);
  for (const Process& other : processes_) {
    const HeldState& held = other.member.held();
    if (!other.alive || held.kind != HeldState::Kind::clean || is_cut_off(other) || is_cut_off(process))
      continue;
    if (std::max(held.step, step) - std::min(held.step, step) > 1)
      violate("skew", fmt::format("{} is at step {}, {} at step {}", who, step,
                                  elastic::describe(other.member.self()), held.step));
  }
  if (process.member.self().rank == 0 && options_.checkpoint_every > 0 &&
      step % options_.checkpoint_every == 0)
    checkpoint_ = std::max(checkpoint_.value_or(0), step);
}

void World::carry_out(int index, const MemberActions& actions) {
  for (const MemberAction& action : actions) {
    Process& process = processes_[static_cast<std::size_t>(index)];
    std::visit(
        Overloaded{[&](const KeepAside&) { process.kept = process.state; }, [](const DropKept&) {},
                   [](const AbortGroup&) {},
                   [&](const ReportSuspect& report) { process.reports.emplace_back(report); },
                   [&](const DiscardStep& discard) {
                     process.position = Position::idle;
                     if (discard.restore) process.state.loader = process.kept.loader;
                   },
                   [&](const ReportParked& report) { process.reports.emplace_back(report); },
                   [&](const Reform&) {
                     process.position = Position::join;
                     process.collective = 0;
                   },
                   [&](const SendState& send) {
                     for (const int receiver : send.receivers)
                       group(process).transfers[static_cast<std::size_t>(receiver)] = process.state;
                   },
                   [&](const ReceiveState&) { process.position = Position::receive; },
                   [&](const Enter& enter) {
                     process.position = Position::begin;
                     const std::string who = elastic::describe(process.member.self());
                     if (process.state.weights != reference_[enter.step] ||
                         process.state.loader != enter.step)
                       violate("bits", fmt::format("{} enters step {} with another state", who, enter.step));
                     if (enter.step < process.committed)
                       violate("undone", fmt::format("{} has committed step {} and goes on with step {}", who,
                                                     process.committed, enter.step));
                     process.committed = std::max(process.committed, enter.step);
                     carry_out(index, process.member.begin_step());
                   },
                   [&](const ReportFinished& report) { process.reports.emplace_back(report); },
                   [&](const Leave& leave) {
                     process.position = Position::idle;
                     process.alive = false;
                     if (!leave.why.empty() && !is_cut_off(process)) violate("survivors", leave.why);
                   }},
        action);
  }
}

void World::hear_report(int index) {
  Process& process = processes_[static_cast<std::size_t>(index)];
  const Report report = process.reports.front();
  process.reports.erase(process.reports.begin());
  const RankProcess self = process.member.self();
  carry_out(std::visit(
      Overloaded{[&](const ReportSuspect& r) { return planner_.on_suspect(r.generation, self, r.why, now_); },
                 [&](const ReportParked& r) { return planner_.on_parked(r.generation, self, r.held, now_); },
                 [&](const ReportFinished& r) { return planner_.on_finished(r.generation, self); }},
      report));
}

void World::carry_out(const PlannerActions& actions) {
  const auto tell_all = [&](const auto& tell) {
    for (Process& process : processes_) {
      if (process.alive && !is_waiting_spare(process)) tell(process);
    }
  };
  for (const PlannerAction& action : actions) {
    std::visit(
        Overloaded{
            [&](const Revoke& revoke) {
              if (finish_confirmed_) violate("plan", "a finished generation was revoked");
              tell_all([&](Process& process) { process.revoked.push_back({revoke.generation, revoke.why}); });
            },
            [&](const Kill& kill) {
              const int index = World::current(kill.process);
              const Process& process = processes_[static_cast<std::size_t>(index)];
              // What ends by itself needs no time; only a process that is paused does not park.
              if (process.alive && !process.paused && !hurried_ && !is_leaving(process))
                violate("survivors", elastic::describe(kill.process) + " is killed, but could have parked");
              node(kill.node).commands.emplace_back(kill);
            },
            [&](const Replace& replace) { node(replace.node).commands.emplace_back(replace); },
            [&](const StartNode& start) {
              // The one that waited for a node that leaves has taken another one's place.
              if (waiting_nodes_ == 0)
                return carry_out(planner_.on_node_lost(start.node, "left", false, now_));
              --waiting_nodes_;
              places_[static_cast<std::size_t>(start.node)] = static_cast<int>(nodes_.size());
              nodes_.emplace_back();
              for (const RankProcess& process : start.processes)
                nodes_.back().commands.emplace_back(Replace{process, start.node, start.generation});
            },
            [&](const StartSpare& spare) { node(spare.node).commands.emplace_back(spare); },
            [&](const CallSpare& call) {
              if (!calls_.emplace(call.process, call.generation).second)
                violate("fence", elastic::describe(call.process) + " is called twice");
              for (const Process& process : processes_) {
                const RankProcess& other = process.member.self();
                // One that was too late is being killed, and never gets a part in the training.
                if (process.alive && other.rank == call.process.rank && !is_waiting_spare(process) &&
                    !is_cut_off(process) && other != call.process)
                  violate("fence", fmt::format("{} is called beside {}", elastic::describe(call.process),
                                               elastic::describe(other)));
              }
            },
            [&](const EndSpare& end) {
              if (calls_.contains(end.process))
                violate("survivors", elastic::describe(end.process) + " is ended after its call");
              node(end.node).commands.emplace_back(end);
            },
            [](const TellOfSpare&) {},
            [&](const Publish& publish) {
              const RecoveryPlan& plan = publish.plan;
              if (groups_.contains(plan.generation) || !groups_.contains(plan.generation - 1))
                violate("plan", fmt::format("generation {} is planned after {}", plan.generation,
                                            groups_.rbegin()->first));
              groups_[plan.generation].plan = plan;
              groups_[plan.generation].transfers.resize(options_.nodes.size());
              const Generation oldest = groups_.begin()->first;
              const bool is_used = std::ranges::any_of(processes_, [&](const Process& process) {
                return process.alive && process.member.generation() == oldest;
              });
              if (groups_.size() > 3 && !is_used) groups_.erase(oldest);
              tell_all([&](Process& process) { process.plans.emplace_back(plan); });
            },
            [&](const ConfirmFinish& finish) {
              finish_confirmed_ = true;
              tell_all([&](Process& process) { process.plans.emplace_back(Finished{finish.generation}); });
            },
            [&](const GiveUp& give_up) {
              if (verdict_) violate("plan", "given up twice: " + *verdict_ + "; " + give_up.reason);
              if (give_up.reason.empty()) violate("plan", "given up without a reason");
              verdict_ = give_up.reason;
            }},
        action);
  }
}

void World::execute_command(int index) {
  Node& agent = nodes_[static_cast<std::size_t>(index)];
  const Command command = agent.commands.front();
  agent.commands.erase(agent.commands.begin());
  const auto kill = [&](const RankProcess& victim) {
    const int found = current(victim);
    const Process& process = processes_[static_cast<std::size_t>(found)];
    if (process.alive && !process.stuck) end(found);
  };
  if (const auto* order = std::get_if<Kill>(&command)) return kill(order->process);
  if (const auto* order = std::get_if<EndSpare>(&command)) return kill(order->process);
  if (const auto* spare = std::get_if<StartSpare>(&command))
    return start(spare->process, index, std::nullopt);
  const Replace& replace = std::get<Replace>(command);
  for (const Process& process : processes_) {
    // Spares of a node that has left are told to end, and will not be called.
    if (is_waiting_spare(process) && !number_of(process.node)) continue;
    if (process.alive && process.member.self().rank == replace.process.rank && !is_cut_off(process))
      violate("fence", fmt::format("{} is started beside {}", elastic::describe(replace.process),
                                   elastic::describe(process.member.self())));
  }
  start(replace.process, index, replace.generation);
}

/// Without a generation: a spare. Its Member is made when it is called.
void World::start(const RankProcess& self, int node, std::optional<Generation> generation) {
  processes_.push_back({.member = Member::replacement(self, generation.value_or(2)),
                        .node = node,
                        .is_spare = !generation,
                        .position = Position::set_up});
  processes_.back().member.stage_transfers(options_.stages_transfers);
}

}  // namespace lockstep::elastic
