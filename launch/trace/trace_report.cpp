#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trace/merged_trace.hpp"

namespace lockstep::launch {
namespace {

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
  return static_cast<double>(collective.last_arrival() - collective.first_arrival()) / 1e9;
}

std::vector<int> last_ranks(const MergedCollective& collective) {
  std::vector<int> ranks;
  for (const auto& [rank, operation] : collective.by_rank) {
    if (operation->begin == collective.last_arrival()) ranks.push_back(rank);
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

std::string trace_report(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged) {
  return ranks_text(traces) + groups_text(merged) + longest_waits(merged) +
         lateness_text(lateness_of(traces, merged));
}

}  // namespace lockstep::launch
