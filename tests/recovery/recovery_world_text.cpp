#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "recovery/recovery_world.hpp"

namespace lockstep::elastic {

std::string World::key() const {
  std::string text = planner_.describe_state();
  const auto put = [&](auto... values) {
    (text.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  };
  if (planner_.deadline() != RecoveryPlanner::Time::max()) put((planner_.deadline() - now_).count());
  Generation oldest = planner_.generation();
  for (const Process& process : processes_) {
    const int rank = process.member.self().rank;
    if (!process.alive && process.reports.empty()) {
      put(rank, process.member.has_left());
      continue;
    }
    if (process.alive) oldest = std::min(oldest, process.member.generation());
    text += process.member.describe_state();
    put(process.alive, process.paused, process.stuck, process.position, process.state.weights,
        process.state.loader, process.collective, process.next_object, process.committed, process.is_spare,
        is_waiting_spare(process));
    for (const auto& notice : process.revoked) put('r', notice.generation);
    for (const auto& notice : process.plans)
      put('p', notice.index(), std::visit([](const auto& n) { return n.generation; }, notice));
    for (const auto& report : process.reports) {
      put('s', report.index(), std::visit([](const auto& r) { return r.generation; }, report));
      if (const auto* parked = std::get_if<ReportParked>(&report)) put(parked->held.kind, parked->held.step);
    }
  }
  for (const Node& node : nodes_) {
    put('n', node.lost);
    for (const auto& ended : node.ended) put('e', ended.rank, ended.process);
    for (const auto& command : node.commands)
      put('c', command.index(), std::visit([](const auto& c) { return c.process.rank; }, command));
  }
  for (const auto& [generation, group] : groups_) {
    if (generation < oldest) continue;  // No live process can use it.
    put('g', generation, group.plan.step, group.plan.source, group.joined.size());
    for (const int joined : group.joined) put(joined);
    // A collective is over for all when the next but one begins.
    const std::size_t count = group.collectives.size();
    put(count);
    for (std::size_t i = count < 2 ? 0 : count - 2; i < count; ++i) {
      for (const Contribution& contribution : group.collectives[i]) put(contribution.made);
    }
    for (const auto& transfer : group.transfers) put(transfer.has_value());
  }
  for (const int place : places_) put('o', place);
  put(finish_confirmed_, verdict_.has_value(), checkpoint_.value_or(0), waiting_nodes_, leaving_);
  return text;
}

std::string World::describe() const {
  std::string text = planner_.describe_state() + "\n";
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    text += fmt::format(
        "  process {} on node {}: {}{}{}, position {}, loader {}, {} reports, {} revoked, {} plans\n", i,
        process.node, process.member.describe_state(), process.alive ? "" : ", dead",
        process.stuck    ? ", stuck"
        : process.paused ? ", paused"
                         : "",
        static_cast<int>(process.position), process.state.loader, process.reports.size(),
        process.revoked.size(), process.plans.size());
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    text += fmt::format("  node {}: {} commands, {} exits{}\n", i, nodes_[i].commands.size(),
                        nodes_[i].ended.size(), nodes_[i].lost ? ", lost" : "");
  if (verdict_) text += "  given up: " + *verdict_ + "\n";
  return text;
}

}  // namespace lockstep::elastic
