#include "trace/merged_trace.hpp"

#include <algorithm>
#include <set>

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

/// Ranks with a trace; the others' silence says nothing about one collective.
std::set<int> ranks_of(const std::vector<RankTrace>& traces) {
  std::set<int> ranks;
  for (const auto& trace : traces) ranks.insert(trace.rank);
  return ranks;
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

std::int64_t MergedCollective::first_arrival() const {
  std::int64_t first = by_rank.begin()->second->begin;
  for (const auto& [rank, operation] : by_rank) first = std::min(first, operation->begin);
  return first;
}

std::int64_t MergedCollective::last_arrival() const {
  std::int64_t last = by_rank.begin()->second->begin;
  for (const auto& [rank, operation] : by_rank) last = std::max(last, operation->begin);
  return last;
}

std::vector<MergedCollective> merge(const std::vector<RankTrace>& traces) {
  std::map<std::string, GroupView> groups;
  for (const auto& trace : traces) add(groups, trace);
  const auto present = ranks_of(traces);
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
    const std::int64_t first = collective.first_arrival();
    const std::int64_t last = collective.last_arrival();
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

}  // namespace lockstep::launch
