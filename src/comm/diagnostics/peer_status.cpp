#include "comm/diagnostics/peer_status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "coordination/group_info.hpp"
#include "core/text.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kArrived = "has arrived";
constexpr const char* kSilent = "does not answer: stopped, or gone";
constexpr const char* kOutOfReach =
    "does not answer, and neither does the job's store: disconnected, or gone";

const char* silence(const PeerStatus& status) { return status.store_answers ? kSilent : kOutOfReach; }

template <class Map, class Key>
const typename Map::mapped_type* look_up(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

/// The ranks that the operation waits for: all, or the other side of a message.
std::vector<int> awaited(const OperationRecord& record, const GroupFacts& group, int self) {
  std::vector<int> ranks;
  for (std::size_t member = 0; member < group.ranks.size(); ++member) {
    const bool other_side = !record.meta.is_message || record.meta.peer < 0 ||
                            record.meta.peer == static_cast<std::int32_t>(member);
    if (group.ranks[member] != self && other_side) ranks.push_back(group.ranks[member]);
  }
  return ranks;
}

std::string describe_activity(const RankReport& report) {
  return report.activity.empty() ? "has not arrived" : "is in " + report.activity;
}

/// What a rank does, as text after its name; "" if it has arrived.
std::string excuse_of(const OperationRecord& record, const std::string& group, int rank,
                      const PeerStatus& status) {
  if (const auto* gone = look_up(status.departed, rank)) return *gone;
  const auto* report = look_up(status.reports, rank);
  if (report == nullptr) return silence(status);
  const auto* there = look_up(report->groups, group);
  const std::uint64_t number = record.id.sequence;
  if (there == nullptr || record.meta.is_message || there->progress.collectives < number)
    return describe_activity(*report);
  const auto* same = look_up(there->recent, number);
  if (same == nullptr || *same == record.meta.fingerprint()) return "";
  return fmt::format("does {} as #{} instead", *same, number);
}

/// Texts and the ranks to which they apply, in the order in which they were added.
using Excuses = std::vector<std::pair<std::string, std::vector<int>>>;

void add(Excuses& excuses, const std::string& text, int rank) {
  const auto same =
      std::find_if(excuses.begin(), excuses.end(), [&](const auto& e) { return e.first == text; });
  if (same != excuses.end()) return same->second.push_back(rank);
  excuses.push_back({text, {rank}});
}

/// Converts "is in forward" to the plural form for several ranks.
std::string for_several(std::string text) {
  for (const auto& [one, several] :
       {std::pair<std::string_view, std::string_view>{"is ", "are "}, {"has ", "have "}, {"does ", "do "}}) {
    if (text.starts_with(one)) return text.replace(0, one.size(), several);
  }
  return text;
}

std::string sentence(const std::string& text, const std::vector<int>& ranks) {
  return fmt::format("{} {}", list_ranks(ranks), ranks.size() == 1 ? text : for_several(text));
}

std::string sentences(const Excuses& excuses) {
  std::vector<std::string> texts;
  for (const auto& [text, ranks] : excuses) texts.push_back(sentence(text, ranks));
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// The collective that `report`'s rank is in and that this rank, which has begun `own` collectives, has not
/// called; "" if there is none. Collectives that failed at their start do not count.
std::string ahead(const RankReport::Group& report, std::uint64_t own) {
  const auto& progress = report.progress;
  const bool is_in_one = progress.collectives + progress.messages > progress.finished;
  if (progress.collectives <= own || !is_in_one) return "";
  const auto* next = look_up(report.recent, own + 1);
  return fmt::format("{} #{}", next == nullptr ? "collective" : *next, own + 1);
}

}  // namespace

WaitingFor waiting_for(const OperationRecord& record, const GroupFacts& group, int self,
                       const PeerStatus& status) {
  Excuses all;
  WaitingFor result;
  for (const int rank : awaited(record, group, self)) {
    const std::string excuse = excuse_of(record, group.name, rank, status);
    if (!excuse.empty()) result.missing.push_back(rank);
    add(all, excuse.empty() ? kArrived : excuse, rank);
  }
  std::stable_partition(all.begin(), all.end(), [](const auto& e) { return e.first == kArrived; });
  result.text = sentences(all);
  return result;
}

std::string silent_text(const PeerStatus& status, const GroupFacts& group, int self) {
  // Without this rank's own answer, missing answers of others mean nothing.
  if (!status.reports.contains(self)) return "";
  Excuses excuses;
  for (const int rank : group.ranks) {
    if (rank != self && !status.reports.contains(rank)) add(excuses, kSilent, rank);
  }
  return sentences(excuses);
}

std::string activity_text(const PeerStatus& status, const std::vector<int>& ranks) {
  Excuses excuses;
  for (const int rank : ranks) {
    const auto* report = look_up(status.reports, rank);
    if (const auto* gone = look_up(status.departed, rank)) {
      add(excuses, *gone, rank);
    } else if (report == nullptr) {
      add(excuses, silence(status), rank);
    } else if (!report->activity.empty()) {
      add(excuses, describe_activity(*report), rank);
    }
  }
  return sentences(excuses);
}

std::string departed_text(const std::map<int, std::string>& departed, const GroupFacts& group, int self) {
  std::vector<std::string> texts;
  for (const auto& [rank, how] : departed) {
    const bool member = std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
    if (member && rank != self) texts.push_back(sentence(how, {rank}));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string obstacle_text(const PeerStatus& status, const std::vector<int>& ranks, const std::string& group,
                          std::uint64_t own) {
  for (const int rank : ranks) {
    if (const auto* gone = look_up(status.departed, rank)) return sentence(*gone, {rank});
    const auto* report = look_up(status.reports, rank);
    const auto* there = report == nullptr ? nullptr : look_up(report->groups, group);
    const std::string collective = there == nullptr ? "" : ahead(*there, own);
    if (collective.empty()) continue;
    return fmt::format(
        "{} is in {}, which this rank has not called: their numbers of batches differ, or one took another "
        "branch. Every rank must make the same calls in the same order",
        list_ranks({rank}), collective);
  }
  return "";
}

}  // namespace lockstep::comm
