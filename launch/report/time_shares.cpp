#include "report/time_shares.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/utf8_check.hpp"

namespace lockstep::launch {
namespace {

/// The thread that trains: the one with the most time in ranges.
long training_thread(const RankTrace& trace) {
  std::map<long, std::int64_t> time;
  for (const auto& span : trace.spans) time[span.thread] += std::max<std::int64_t>(span.end - span.begin, 0);
  const auto most = std::ranges::max_element(time, {}, [](const auto& entry) { return entry.second; });
  return most == time.end() ? 0 : most->first;
}

/// What a moment of the training is: the beginning or the end of a range, or of an operation.
struct Change {
  std::int64_t time = 0;
  bool begins = false;
  /// Null for an operation.
  const TracedSpan* span = nullptr;
};

/// The oldest operations and ranges of a long training are not recorded any more: the time for which both are
/// there.
std::pair<std::int64_t, std::int64_t> covered(const RankTrace& trace, long thread) {
  std::int64_t begin = 0, end = 0;
  bool is_first = true;
  for (const auto& span : trace.spans) {
    if (span.thread != thread) continue;
    begin = is_first ? span.begin : std::min(begin, span.begin);
    end = is_first ? span.end : std::max(end, span.end);
    is_first = false;
  }
  const bool has_all =
      std::ranges::any_of(trace.operations, [](const auto& operation) { return operation.number == 1; });
  if (!trace.operations.empty() && !has_all) {
    const auto first = std::ranges::min(trace.operations, {}, &TracedOperation::begin).begin;
    begin = std::min(std::max(begin, first), end);
  }
  return {begin, end};
}

std::vector<Change> changes_of(const RankTrace& trace, long thread, std::int64_t until) {
  std::vector<Change> changes;
  for (const auto& span : trace.spans) {
    if (span.thread != thread || span.end <= span.begin) continue;
    changes.push_back({span.begin, true, &span});
    changes.push_back({span.end, false, &span});
  }
  for (const auto& operation : trace.operations) {
    const std::int64_t end = operation.end == 0 ? until : operation.end;
    if (end <= operation.begin) continue;
    changes.push_back({operation.begin, true, nullptr});
    changes.push_back({end, false, nullptr});
  }
  std::ranges::stable_sort(changes, [](const Change& one, const Change& other) {
    // What ends makes room first.
    return one.time != other.time ? one.time < other.time : one.begins < other.begins;
  });
  return changes;
}

std::string state_name(const std::vector<const TracedSpan*>& open, int operations) {
  if (open.empty()) return operations > 0 ? kCommunicationAlone : kBetweenRanges;
  const auto whole = std::ranges::find_if(
      open, [](const TracedSpan* span) { return span->name == "evaluation" || span->name == "checkpoint"; });
  if (whole != open.end()) return (*whole)->name;
  const std::string name = utf8_text(open.back()->name);
  return operations > 0 && name == "backward" ? kOverlapped : name;
}

/// The usual parts of a step, in its order, then the program's own ranges, then the rest.
int rank_in_order(const std::string& what) {
  constexpr std::string_view kFirst[] = {"loader",       "forward",           "backward", kOverlapped,
                                         kCommunication, kCommunicationAlone, "optimizer"};
  const auto* const found = std::ranges::find(kFirst, std::string_view(what));
  if (found != std::end(kFirst)) return static_cast<int>(found - std::begin(kFirst));
  return what == kBetweenRanges ? 100 : 50;
}

std::vector<TimeShare> sorted_shares(const std::map<std::string, double>& seconds) {
  std::vector<TimeShare> shares;
  for (const auto& [what, time] : seconds) {
    if (time > 0) shares.push_back({what, time});
  }
  std::ranges::stable_sort(shares, [](const TimeShare& one, const TimeShare& other) {
    const int left = rank_in_order(one.what), right = rank_in_order(other.what);
    return left != right ? left < right : one.seconds > other.seconds;
  });
  return shares;
}

}  // namespace

SpentTime spent_time_of(const RankTrace& trace) {
  SpentTime spent{.who = fmt::format("rank {}", trace.rank), .seconds = 0, .shares = {}};
  const long thread = training_thread(trace);
  const auto [begin, end] = covered(trace, thread);
  std::map<std::string, double> seconds;
  std::vector<const TracedSpan*> open;
  int operations = 0;
  std::int64_t now = begin;
  for (const Change& change : changes_of(trace, thread, end)) {
    const std::int64_t time = std::clamp(change.time, now, end);
    if (time > now) seconds[state_name(open, operations)] += static_cast<double>(time - now) / 1e9;
    now = time;
    if (change.span == nullptr) {
      operations += change.begins ? 1 : -1;
    } else if (change.begins) {
      open.push_back(change.span);
    } else {
      std::erase(open, change.span);
    }
  }
  spent.seconds = static_cast<double>(end - begin) / 1e9;
  spent.shares = sorted_shares(seconds);
  return spent;
}

SpentTime spent_time_of(std::string who, double seconds, std::map<std::string, double> parts) {
  double rest = seconds;
  for (const auto& [what, time] : parts) rest -= time;
  parts[kBetweenRanges] = std::max(rest, 0.0);
  return {.who = std::move(who), .seconds = seconds, .shares = sorted_shares(parts)};
}

void add_evaluations(RankTrace& trace, const RankTrace& reference,
                     const std::vector<LoggedEvaluation>& evaluations) {
  // A Trainer's traces have them.
  const bool has_own = std::ranges::find(trace.spans, "evaluation", &TracedSpan::name) != trace.spans.end();
  if (trace.spans.empty() || has_own) return;
  const long thread = training_thread(trace);
  std::int64_t first = trace.spans.front().begin, last = trace.spans.front().end;
  for (const auto& span : trace.spans) {
    first = std::min(first, span.begin);
    last = std::max(last, span.end);
  }
  for (const auto& operation : trace.operations) last = std::max(last, operation.end);
  for (const auto& evaluation : evaluations) {
    // Far from what an integer holds: nanoseconds since 1970 are below 2^61 until the year 2043.
    if (!(evaluation.end > 0 && evaluation.end < 2.3e9 && evaluation.seconds > 0 && evaluation.seconds < 1e9))
      continue;
    const auto end = static_cast<std::int64_t>(evaluation.end * 1e9) - reference.wall_offset;
    const auto begin = end - static_cast<std::int64_t>(evaluation.seconds * 1e9);
    if (begin >= first && end <= last) trace.spans.push_back({"evaluation", thread, begin, end});
  }
}

SpentTime mean_of(const std::vector<SpentTime>& ranks) {
  SpentTime mean{.who = ranks.size() == 1 ? ranks.front().who : "all ranks", .seconds = 0, .shares = {}};
  std::map<std::string, double> seconds;
  const auto count = static_cast<double>(std::max<std::size_t>(ranks.size(), 1));
  for (const auto& rank : ranks) {
    mean.seconds += rank.seconds / count;
    for (const auto& share : rank.shares) seconds[share.what] += share.seconds / count;
  }
  mean.shares = sorted_shares(seconds);
  return mean;
}

}  // namespace lockstep::launch
