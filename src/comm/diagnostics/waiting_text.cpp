#include "comm/diagnostics/waiting_text.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "comm/store_barrier.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kSilent = "does not answer: stopped, or gone";
constexpr const char* kOutOfReach = "does not answer, and neither does the job's store: cut off, or gone";

const char* silence(const PeerStatus& status) { return status.store_answers ? kSilent : kOutOfReach; }

/// Whom the operation waits for: everybody, or one side of a message.
std::vector<int> awaited(const OperationRecord& record, const GroupFacts& group, int self) {
  std::vector<int> ranks;
  for (std::size_t place = 0; place < group.ranks.size(); ++place) {
    const bool other_side = !record.meta.is_message || record.meta.peer < 0 ||
                            record.meta.peer == static_cast<std::int32_t>(place);
    if (group.ranks[place] != self && other_side) ranks.push_back(group.ranks[place]);
  }
  return ranks;
}

std::string place_of(const RankReport& report) {
  return report.doing.empty() ? "has not arrived" : "is in " + report.doing;
}

/// What one rank does, in words after its name; "" when it has arrived, so that it is not to blame.
std::string excuse_of(const OperationRecord& record, const std::string& group, int rank,
                      const PeerStatus& status) {
  if (const auto gone = status.departed.find(rank); gone != status.departed.end()) return gone->second;
  const auto found = status.reports.find(rank);
  if (found == status.reports.end()) return silence(status);
  const auto there = found->second.groups.find(group);
  if (there == found->second.groups.end()) return place_of(found->second);
  if (record.meta.is_message) return place_of(found->second);
  const std::uint64_t number = record.id.sequence;
  if (there->second.progress.collectives < number) return place_of(found->second);
  const auto same = there->second.recent.find(number);
  if (same == there->second.recent.end() || same->second == record.meta.fingerprint()) return "";
  return "does " + same->second + " as #" + std::to_string(number) + " instead";
}

using Excuses = std::vector<std::pair<std::string, std::vector<int>>>;

void add(Excuses& excuses, const std::string& text, int rank) {
  const auto same =
      std::find_if(excuses.begin(), excuses.end(), [&](const auto& e) { return e.first == text; });
  if (same != excuses.end()) return same->second.push_back(rank);
  excuses.push_back({text, {rank}});
}

/// "ranks 1, 2 is in forward" would be no English.
std::string for_several(std::string text) {
  for (const auto& [one, several] :
       {std::pair<std::string_view, std::string_view>{"is ", "are "}, {"has ", "have "}, {"does ", "do "}}) {
    if (text.starts_with(one)) return text.replace(0, one.size(), several);
  }
  return text;
}

std::string sentence(const std::string& text, const std::vector<int>& ranks) {
  return list_ranks(ranks) + " " + (ranks.size() == 1 ? text : for_several(text));
}

}  // namespace

std::string duration_text(std::int64_t milliseconds) {
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  if (milliseconds % 1000 == 0 || milliseconds > 10'000) return std::to_string(milliseconds / 1000) + " s";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(milliseconds) / 1000);
  return text;
}

WaitingFor waiting_for(const OperationRecord& record, const GroupFacts& group, int self,
                       const PeerStatus& status) {
  std::vector<int> arrived;
  Excuses excuses;
  WaitingFor result;
  for (const int rank : awaited(record, group, self)) {
    const std::string excuse = excuse_of(record, group.name, rank, status);
    if (excuse.empty()) {
      arrived.push_back(rank);
    } else {
      add(excuses, excuse, rank);
      result.missing.push_back(rank);
    }
  }
  if (!arrived.empty()) result.text = sentence("has arrived", arrived);
  for (const auto& [text, ranks] : excuses)
    result.text += (result.text.empty() ? "" : "; ") + sentence(text, ranks);
  return result;
}

std::string silent_text(const PeerStatus& status, const GroupFacts& group, int self) {
  // Without this rank's own answer those of others tell nothing.
  if (!status.reports.contains(self)) return "";
  std::vector<int> silent;
  for (const int rank : group.ranks) {
    if (rank != self && !status.reports.contains(rank)) silent.push_back(rank);
  }
  return silent.empty() ? "" : sentence(kSilent, silent);
}

std::string doings_text(const PeerStatus& status, const std::vector<int>& ranks) {
  Excuses excuses;
  for (const int rank : ranks) {
    const auto gone = status.departed.find(rank);
    const auto report = status.reports.find(rank);
    if (gone != status.departed.end()) {
      add(excuses, gone->second, rank);
    } else if (report == status.reports.end()) {
      add(excuses, silence(status), rank);
    } else if (!report->second.doing.empty()) {
      add(excuses, "is in " + report->second.doing, rank);
    }
  }
  std::string text;
  for (const auto& [doing, who] : excuses) text += (text.empty() ? "" : "; ") + sentence(doing, who);
  return text;
}

std::string departed_text(const std::map<int, std::string>& departed, const GroupFacts& group, int self) {
  std::string text;
  for (const auto& [rank, how] : departed) {
    const bool member = std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
    if (member && rank != self) text += (text.empty() ? "" : "; ") + list_ranks({rank}) + " " + how;
  }
  return text;
}

}  // namespace lockstep::comm
