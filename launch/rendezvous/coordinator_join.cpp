// Which nodes may join, and the messages about those that may not, or have not yet.

#include <fmt/format.h>

#include <csignal>
#include <set>

#include "core/text.hpp"
#include "core/time.hpp"
#include "process/words.hpp"
#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {
namespace {

/// Further refusals are not reported, as they may be an attack.
constexpr std::size_t kMostRefused = 16;
/// Characters of a command line that are shown in a message.
constexpr std::size_t kMostArguments = 200;

}  // namespace

/// Why the node may not join, or an empty text: its options differ from the job's, or there is no room for
/// it.
std::string Coordinator::rejection(const NodeInfo& info) const {
  if (info.version != kProtocolVersion)
    return fmt::format(
        "it uses version {} of the launchers' protocol, this one {}. Use the same version of lockstep on "
        "every node",
        info.version, kProtocolVersion);
  if (info.run_id != options_.run_id)
    return fmt::format(
        "its --rdzv-id is '{}', that of the job here is '{}'. Two jobs need two endpoints; nodes of one job "
        "need one run id",
        info.run_id, options_.run_id);
  if (info.min_nodes != options_.min_nodes || info.max_nodes != options_.max_nodes)
    return fmt::format("its --nnodes is {}, that of the job here is {}. Give the same on every node",
                       range_text(info.min_nodes, info.max_nodes),
                       range_text(options_.min_nodes, options_.max_nodes));
  for (const auto& node : nodes_) {
    if (info.program.empty() || node.info.program.empty() || node.info.role != info.role) continue;
    // The others of this role run what the first one does.
    if (node.info.program == info.program) break;
    return fmt::format(
        "its ranks run '{}', those of the job here (host {}, process {}) run '{}'. Two jobs need two "
        "endpoints (--rdzv-endpoint); several programs of one job need a --role each",
        info.program, node.info.host, node.info.pid, node.info.program);
  }
  if (phase_ == Phase::finishing || reason_ == Reason::end) return "the job is over";
  if (!info.node_rank) return "";
  if (*info.node_rank >= options_.max_nodes)
    return fmt::format("its --node-rank is {}, but the job has {}, numbered from 0", *info.node_rank,
                       nodes_text(options_.max_nodes));
  for (const auto& node : nodes_) {
    if (node.info.node_rank == info.node_rank)
      return fmt::format("--node-rank {} is taken by host {}, process {}. Give every node its own",
                         *info.node_rank, node.info.host, node.info.pid);
  }
  return "";
}

void Coordinator::on_join(NodeId id, const NodeInfo& info, Time now) {
  if (const std::string why = rejection(info); !why.empty()) {
    actions_.send(id, Reject{why});
    actions_.dismiss(id);
    return on_refused("a launcher from " + info.host, why);
  }
  const bool ending =
      std::ranges::any_of(nodes_, [](const Node& other) { return other.active && other.ended; });
  const bool full = staying() >= options_.max_nodes || (phase_ == Phase::running && ending);
  places_[id] = nodes_.size();
  Node& node = nodes_.emplace_back();
  node.id = id;
  node.info = info;
  node.last_message_time = now;
  compare_clocks(node);
  compare_arguments(node);
  if (full) {
    actions_.send(id, Notice{"the job has all its nodes, or is about to end; this node is a spare and "
                             "starts when another one leaves"});
  } else if (phase_ == Phase::running) {
    notify(node.text() + " joined: restarting the ranks with it");
    stop(Reason::membership, SIGTERM);
    check_all_ended(now);
  } else if (phase_ == Phase::gathering) {
    try_start(now);
  }
}

void Coordinator::compare_clocks(const Node& node) {
  constexpr std::chrono::seconds kMuch{5};
  if (!node.info.clock_ahead || std::chrono::abs(*node.info.clock_ahead) <= kMuch) return;
  const bool ahead = node.info.clock_ahead->count() > 0;
  const auto by = std::chrono::round<std::chrono::seconds>(std::chrono::abs(*node.info.clock_ahead));
  notify(
      "the wall clock of {} is {} {} the coordinator's: so are the times in its logs; nothing else depends "
      "on it",
      node.text(), format_seconds(by), ahead ? "ahead of" : "behind");
}

void Coordinator::compare_arguments(const Node& node) {
  for (const auto& other : nodes_) {
    if (other.id == node.id || other.info.program.empty() || other.info.role != node.info.role) continue;
    if (other.info.arguments == node.info.arguments || node.info.program.empty()) return;
    return notify("{} starts {} with other arguments: '{}'; host {} with '{}'", node.text(),
                  node.info.program, shorten_text(node.info.arguments, kMostArguments), other.info.host,
                  shorten_text(other.info.arguments, kMostArguments));
  }
}

void Coordinator::on_refused(const std::string& who, const std::string& why) {
  if (refused_.size() >= kMostRefused || !refused_.emplace(who, why).second) return;
  notify("refused {}: {}", who, why);
}

std::string Coordinator::awaited() const {
  std::vector<std::string> here;
  std::set<int> numbers;
  for (const auto& node : nodes_) {
    if (node.drain_signal != 0) continue;
    here.push_back(node.info.host);
    if (node.info.node_rank) numbers.insert(*node.info.node_rank);
  }
  std::vector<std::string> missing;
  for (int i = 0; !numbers.empty() && i < options_.max_nodes; ++i) {
    if (!numbers.contains(i)) missing.push_back(fmt::to_string(i));
  }
  return fmt::format("{} of {} joined ({}){}{}{}{}", nodes_text(staying()),
                     range_text(options_.min_nodes, options_.max_nodes), first_and_last(here),
                     missing.empty() ? "" : "; missing: node ", first_and_last(missing),
                     options_.how_to_join.empty() ? "" : ". ", options_.how_to_join);
}

std::string Coordinator::refused() const {
  std::string text;
  for (const auto& [who, why] : refused_) text += fmt::format("\n  refused {}: {}", who, why);
  return text;
}

}  // namespace lockstep::launch
