#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <set>

#include "trace/trace.hpp"

namespace lockstep::launch {
namespace {

using ByNumber = std::map<std::uint64_t, std::map<int, const TracedOperation*>>;

/// What each rank has of a group, and the first number that it still remembers.
struct GroupView {
  std::vector<int> members;
  ByNumber collectives;
  std::map<int, std::uint64_t> first;
};

void add(std::map<std::string, GroupView>& groups, const RankTrace& trace) {
  for (const auto& [name, ranks] : trace.groups) groups[name].members = ranks;
  for (const auto& operation : trace.operations) {
    if (operation.is_message) continue;
    GroupView& view = groups[operation.group];
    view.collectives[operation.number][trace.rank] = &operation;
    view.first.emplace(trace.rank, operation.number);
  }
}

MergedCollective merged_of(const std::string& name, const GroupView& view, std::uint64_t number,
                           const std::map<int, const TracedOperation*>& by_rank,
                           const std::set<int>& present) {
  MergedCollective result{name, number, by_rank, {}};
  for (const int rank : view.members) {
    if (present.contains(rank) && !by_rank.contains(rank)) result.missing.push_back(rank);
  }
  return result;
}

/// The number from which on all ranks that have anything of the group remember all.
std::uint64_t known_from(const GroupView& view) {
  std::uint64_t number = 1;
  for (const auto& [rank, first] : view.first) number = std::max(number, first);
  return number;
}

constexpr std::size_t kLongestWaits = 5;

std::string list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

/// The rank's last operation, and what has become of it.
std::string last_of(const RankTrace& trace) {
  if (trace.operations.empty()) return "has done nothing";
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
  return text + list({silent.begin(), silent.end()}) +
         " wrote no trace: killed, stopped, or on another folder\n";
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

std::vector<int> arrived_at(const MergedCollective& collective) {
  std::vector<int> ranks;
  for (const auto& [rank, operation] : collective.by_rank) ranks.push_back(rank);
  return ranks;
}

/// The first place where a group's ranks part; "" where they do not.
std::string first_trouble(const MergedCollective& collective) {
  if (collective.is_mismatch())
    return fmt::format("  the ranks differ in collective #{}: {}\n", collective.number,
                       fingerprints_of(collective));
  if (collective.is_complete()) return "";
  return fmt::format("  never arrived at collective #{}: {}; in {}: {}\n", collective.number,
                     list(collective.missing), collective.by_rank.begin()->second->text(),
                     list(arrived_at(collective)));
}

std::string group_text(const std::string& name, const std::vector<const MergedCollective*>& collectives) {
  const MergedCollective* last = nullptr;
  std::string trouble;
  for (const auto* collective : collectives) {
    if (trouble.empty()) trouble = first_trouble(*collective);
    if (collective->is_complete() && collective->has_ended()) last = collective;
  }
  const std::string end =
      last == nullptr ? "no collective that all have ended"
                      : "the last collective that all have ended is " + last->by_rank.begin()->second->text();
  return fmt::format("group {}: {}\n{}", name, end, trouble);
}

std::string groups_text(const std::vector<MergedCollective>& merged) {
  std::map<std::string, std::vector<const MergedCollective*>> groups;
  for (const auto& collective : merged) groups[collective.group].push_back(&collective);
  std::string text;
  for (const auto& [name, collectives] : groups) text += group_text(name, collectives);
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
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return wait_of(*a) > wait_of(*b); });
  order.resize(std::min(order.size(), kLongestWaits));
  std::string text = order.empty() ? "" : "longest waits:\n";
  for (const auto* collective : order) {
    text += fmt::format("  {} in {} of {} for {}\n", milliseconds(wait_of(*collective)),
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
                        milliseconds(rank.late / count), milliseconds(rank.waited / count));
  }
  return text;
}

}  // namespace

bool MergedCollective::is_mismatch() const {
  return std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& entry) {
    return entry.second->fingerprint != by_rank.begin()->second->fingerprint;
  });
}

bool MergedCollective::has_ended() const {
  return std::all_of(by_rank.begin(), by_rank.end(),
                     [](const auto& entry) { return entry.second->state == "completed"; });
}

std::pair<std::int64_t, std::int64_t> MergedCollective::arrivals() const {
  const auto begin_of = [](const auto& entry) { return entry.second->begin; };
  const auto [first, last] = std::ranges::minmax(by_rank | std::views::transform(begin_of));
  return {first, last};
}

std::vector<MergedCollective> merge(const std::vector<RankTrace>& traces) {
  std::map<std::string, GroupView> groups;
  for (const auto& trace : traces) add(groups, trace);
  // Ranks with a trace; the others' silence says nothing about one collective.
  std::set<int> present;
  for (const auto& trace : traces) present.insert(trace.rank);
  std::vector<MergedCollective> merged;
  for (const auto& [name, view] : groups) {
    for (auto next = view.collectives.lower_bound(known_from(view)); next != view.collectives.end(); ++next)
      merged.push_back(merged_of(name, view, next->first, next->second, present));
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
  std::vector<Lateness> result;
  for (const auto& [rank, lateness] : by_rank) result.push_back(lateness);
  return result;
}

std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged) {
  return ranks_text(traces) + groups_text(merged) + longest_waits(merged) +
         lateness_text(lateness_of(traces, merged));
}

}  // namespace lockstep::launch
