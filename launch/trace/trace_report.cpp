#include "trace/trace_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <ranges>
#include <set>

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestWaits = 5;

template <class Ranks>
std::string list(const Ranks& ranks) {
  return fmt::format("{} {}", std::ranges::size(ranks) == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string milliseconds_text(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

/// The rank's last operation and its state.
std::string last_of(const RankTrace& trace) {
  if (trace.operations.empty()) return "has started no operation";
  const TracedOperation& last = trace.operations.back();
  const char* state = last.state == "completed" ? "ended" : last.state == "failed" ? "failed in" : "is in";
  return fmt::format("{} {} of {}", state, last.text(), last.group);
}

std::string ranks_text(const std::vector<RankTrace>& traces) {
  std::string text;
  std::set<int> silent;
  for (int rank = 0; rank < traces.front().world_size; ++rank) silent.insert(rank);
  for (const auto& trace : traces) {
    silent.erase(trace.rank);
    text += fmt::format("rank {} on {}: {} (written for: {})\n", trace.rank, trace.host, last_of(trace),
                        trace.reason);
  }
  if (silent.empty()) return text;
  return text + list(silent) +
         " wrote no trace: killed, stopped, or started with another LOCKSTEP_TRACE_DIR\n";
}

std::string fingerprints_of(const MergedCollective& collective) {
  std::map<std::string, std::vector<int>> by_fingerprint;
  for (const auto& [rank, operation] : collective.by_rank)
    by_fingerprint[operation->fingerprint].push_back(rank);
  std::vector<std::string> texts;
  for (const auto& [fingerprint, ranks] : by_fingerprint)
    texts.push_back(fmt::format("{}: {}", list(ranks), fingerprint));
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// The first difference between the group's ranks; empty if there is none.
std::string first_trouble(const MergedCollective& collective) {
  if (collective.is_mismatch())
    return fmt::format("  the ranks differ in collective #{}: {}\n", collective.number,
                       fingerprints_of(collective));
  if (collective.is_complete()) return "";
  return fmt::format("  never arrived at collective #{}: {}; in {}: {}\n", collective.number,
                     list(collective.missing), collective.by_rank.begin()->second->text(),
                     list(std::views::keys(collective.by_rank)));
}

std::string groups_text(const std::vector<MergedCollective>& merged) {
  struct Group {
    std::string end = "no collective that all ranks have completed";
    std::string trouble;
  };
  std::map<std::string, Group> groups;
  for (const auto& collective : merged) {
    Group& group = groups[collective.group];
    if (group.trouble.empty()) group.trouble = first_trouble(collective);
    if (collective.is_complete() && collective.has_ended())
      group.end = "the last collective that all ranks have completed is " +
                  collective.by_rank.begin()->second->text();
  }
  std::string text;
  for (const auto& [name, group] : groups)
    text += fmt::format("group {}: {}\n{}", name, group.end, group.trouble);
  return text;
}

double wait_of(const MergedCollective& collective) {
  const auto [first, last] = collective.arrivals();
  return static_cast<double>(last - first) / 1e9;
}

std::vector<int> last_ranks(const MergedCollective& collective) {
  const auto last = collective.arrivals().second;
  std::vector<int> ranks;
  for (const auto& [rank, operation] : collective.by_rank) {
    if (operation->begin == last) ranks.push_back(rank);
  }
  return ranks;
}

std::string longest_waits(const std::vector<MergedCollective>& merged) {
  std::vector<const MergedCollective*> order;
  for (const auto& collective : merged) {
    if (collective.is_complete() && collective.by_rank.size() > 1) order.push_back(&collective);
  }
  std::ranges::stable_sort(order, std::greater(), [](const auto* entry) { return wait_of(*entry); });
  order.resize(std::min(order.size(), kLongestWaits));
  std::string text = order.empty() ? "" : "longest waits:\n";
  for (const auto* collective : order) {
    text += fmt::format("  {} in {} of {} for {}\n", milliseconds_text(wait_of(*collective)),
                        collective->by_rank.begin()->second->text(), collective->group,
                        list(last_ranks(*collective)));
  }
  return text;
}

std::string lateness_text(const std::vector<Lateness>& all) {
  std::string text = "  rank  collectives  came last   mean lateness      mean wait\n";
  for (const auto& rank : all) {
    const double count = std::max(rank.collectives, 1);
    text += fmt::format("{:6}  {:11}  {:9}  {:>14} {:>14}\n", rank.rank, rank.collectives, rank.last,
                        milliseconds_text(rank.late / count), milliseconds_text(rank.waited / count));
  }
  return text;
}

}  // namespace

bool MergedCollective::is_mismatch() const {
  return std::ranges::any_of(std::views::values(by_rank), [&](const TracedOperation* operation) {
    return operation->fingerprint != by_rank.begin()->second->fingerprint;
  });
}

bool MergedCollective::has_ended() const {
  return std::ranges::all_of(std::views::values(by_rank), [](const TracedOperation* operation) {
    return operation->state == "completed";
  });
}

std::pair<std::int64_t, std::int64_t> MergedCollective::arrivals() const {
  const auto [first, last] = std::ranges::minmax(std::views::values(by_rank), {}, &TracedOperation::begin);
  return {first->begin, last->begin};
}

std::vector<MergedCollective> merge(const std::vector<RankTrace>& traces) {
  std::map<std::string, std::set<int>> members;
  std::map<std::pair<std::string, std::uint64_t>, MergedCollective> collectives;
  for (const auto& trace : traces) {
    for (const auto& [name, group] : trace.groups)
      members[name].insert(group.ranks.begin(), group.ranks.end());
    for (const auto& operation : trace.operations) {
      if (operation.is_message) continue;
      auto& collective = collectives[{operation.group, operation.number}];
      collective.group = operation.group;
      collective.number = operation.number;
      collective.by_rank[trace.rank] = &operation;
    }
  }
  std::vector<MergedCollective> merged;
  for (auto& [unused, collective] : collectives) {
    bool all_recorded = true;
    // For ranks without a trace, nothing is known about single collectives.
    for (const auto& trace : traces) {
      if (!members[collective.group].contains(trace.rank) || collective.by_rank.contains(trace.rank))
        continue;
      const auto group = trace.groups.find(collective.group);
      const bool started = group != trace.groups.end() && group->second.last_collective >= collective.number;
      if (started) all_recorded = false;
      if (!started) collective.missing.push_back(trace.rank);
    }
    if (all_recorded) merged.push_back(std::move(collective));
  }
  return merged;
}

std::vector<Lateness> lateness_of(const std::vector<RankTrace>& traces,
                                  const std::vector<MergedCollective>& merged) {
  std::map<int, Lateness> by_rank;
  for (const auto& trace : traces) by_rank[trace.rank].rank = trace.rank;
  for (const auto& collective : merged) {
    if (!collective.is_complete() || collective.by_rank.size() < 2) continue;
    const auto [first, last] = collective.arrivals();
    for (const auto& [rank, operation] : collective.by_rank) {
      Lateness& lateness = by_rank[rank];
      ++lateness.collectives;
      lateness.last += operation->begin == last ? 1 : 0;
      lateness.late += static_cast<double>(operation->begin - first) / 1e9;
      lateness.waited += static_cast<double>(last - operation->begin) / 1e9;
    }
  }
  const auto all = std::views::values(by_rank);
  return {all.begin(), all.end()};
}

std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged) {
  return ranks_text(traces) + groups_text(merged) + longest_waits(merged) +
         lateness_text(lateness_of(traces, merged));
}

}  // namespace lockstep::launch
