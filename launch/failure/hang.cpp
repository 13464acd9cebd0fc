#include "failure/hang.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "core/text.hpp"
#include "core/time.hpp"

namespace lockstep::launch {
namespace {

using Ranks = std::vector<RankStatus>;
using std::chrono::milliseconds;

template <class Condition>
Ranks filter_ranks(const Ranks& ranks, const Condition& condition) {
  Ranks result;
  std::ranges::copy_if(ranks, std::back_inserter(result), condition);
  return result;
}

/// Why a process in this state cannot run; empty: it can.
std::string held_text(char state) {
  if (state == 'T') return "stopped by a signal (SIGSTOP, SIGTSTP): SIGCONT continues it";
  if (state == 't') return "held by a debugger";
  if (state == 'D') return "waiting for a device or a file system, in the kernel";
  return "";
}

bool has_left(const RankStatus& rank) { return rank.beat && rank.status == 0; }
bool is_working(const RankStatus& rank) { return rank.beat->activity == Activity::working; }

std::string list_ranks_of(const Ranks& ranks) {
  std::vector<int> numbers;
  for (const auto& rank : ranks) numbers.push_back(rank.rank);
  return list_ranks(numbers);
}

std::string stuck_text(const RankStatus& rank) {
  const std::string head = fmt::format("rank {} ({})", rank.rank, rank.process);
  if (has_left(rank)) return fmt::format("{} left at step {} (exit code 0)", head, rank.beat->step);
  const std::string held = held_text(rank.process_state);
  return fmt::format("{} has made no progress for {}: {}last seen in {}", head,
                     format_whole_seconds(rank.still), held.empty() ? "" : fmt::format("it is {}; ", held),
                     rank.beat->text());
}

/// "ranks 0, 1 have been waiting in all_reduce #412 for 30 s",
/// "rank 2 has been in forward, step 57 for 30 s": one text per position.
std::vector<std::string> status_lines(const Ranks& all) {
  std::map<std::string, Ranks> positions;
  for (const auto& rank : all) positions[rank.beat->text()].push_back(rank);
  std::vector<std::string> texts;
  for (const auto& [position, ranks] : positions) {
    const milliseconds shortest = std::ranges::min(ranks, {}, &RankStatus::still).still;
    const bool is_one = ranks.size() == 1;
    const char* verb = is_working(ranks.front()) ? "been" : "been waiting";
    texts.push_back(fmt::format("{} {} {} in {} for {}", list_ranks_of(ranks), is_one ? "has" : "have", verb,
                                position, format_whole_seconds(shortest)));
  }
  return texts;
}

/// The ranks with the fewest steps; empty if all have the same number.
Ranks behind(const Ranks& ranks) {
  if (ranks.empty()) return {};
  const auto step_of = [](const RankStatus& rank) { return rank.beat->step; };
  const auto least = step_of(std::ranges::min(ranks, {}, step_of));
  const auto behind_others =
      filter_ranks(ranks, [&](const RankStatus& rank) { return step_of(rank) == least; });
  return behind_others.size() < ranks.size() ? behind_others : Ranks();
}

/// The ranks that are not in the most common position.
Ranks elsewhere(const Ranks& ranks) {
  std::map<std::string, int> positions;
  for (const auto& rank : ranks) ++positions[rank.beat->text()];
  const auto most =
      std::ranges::max_element(positions, {}, [](const auto& position) { return position.second; });
  return filter_ranks(ranks, [&](const RankStatus& rank) { return rank.beat->text() != most->first; });
}

/// A rank that waits for its GPU seems to work: it is ahead of the one that the GPU waits for.
Ranks find_suspects(const Ranks& all, const Ranks& running) {
  const Ranks working = filter_ranks(running, is_working);
  for (auto found : {filter_ranks(running, is_held), behind(working), working, filter_ranks(all, has_left),
                     behind(running), elsewhere(running)}) {
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

bool is_held(const RankStatus& rank) { return !held_text(rank.process_state).empty(); }

std::optional<Hang> find_hang(const Ranks& all, milliseconds limit) {
  const Ranks running = filter_ranks(all, [](const RankStatus& rank) { return !rank.status; });
  const auto stands = [&](const RankStatus& rank) { return rank.beat && rank.still >= limit; };
  if (running.empty() || !std::ranges::all_of(running, stands)) return std::nullopt;
  Hang found;
  std::vector<std::string> parts;
  for (const auto& rank : find_suspects(all, running)) {
    found.stuck.push_back(rank.rank);
    found.is_certain = found.is_certain || is_held(rank) || has_left(rank) || is_working(rank);
    parts.push_back(stuck_text(rank));
  }
  found.somebody_waits = !std::ranges::all_of(running, is_working);
  const auto is_other = [&](const RankStatus& rank) {
    return std::ranges::count(found.stuck, rank.rank) == 0;
  };
  for (auto& part : status_lines(filter_ranks(running, is_other))) parts.push_back(std::move(part));
  found.text = fmt::format("{}", fmt::join(parts, "; "));
  if (found.stuck.empty()) found.text += "; no rank is behind: look at the network and at the host of rank 0";
  return found;
}

std::string lost_peers(const Ranks& ranks, int failed) {
  const auto found = std::ranges::find(ranks, failed, &RankStatus::rank);
  if (found == ranks.end() || !found->beat) return "";
  std::vector<std::string> parts;
  for (const auto& rank : filter_ranks(ranks, has_left))
    parts.push_back(fmt::format("rank {} left at step {} (exit code 0)", rank.rank, rank.beat->step));
  if (!parts.empty())
    return fmt::format("{} while rank {} was in {}", fmt::join(parts, "; "), failed, found->beat->text());
  const auto is_aborted = [](const RankStatus& rank) {
    return rank.status && WIFSIGNALED(*rank.status) && WTERMSIG(*rank.status) == SIGABRT;
  };
  if (!is_aborted(*found)) return "";
  const Ranks seen = filter_ranks(ranks, [](const RankStatus& rank) { return rank.beat.has_value(); });
  const Ranks late = behind(seen);
  for (const auto& rank : late.empty() ? elsewhere(seen) : late)
    if (!is_aborted(rank)) parts.push_back(stuck_text(rank));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::optional<HangDetector::Finding> HangDetector::look(const std::vector<RankStatus>& now) {
  const auto hang_within = [&](milliseconds limit) {
    auto found = find_hang(now, limit);
    return found && (options_.sees_all_ranks || found->is_certain) ? found : std::nullopt;
  };
  auto ending = options_.timeout.count() > 0 ? hang_within(options_.timeout) : std::nullopt;
  const bool reported = std::exchange(ended_, ending.has_value());
  if (ending && !reported) return Finding{*std::move(ending), true};
  auto found = hang_within(next_notice_);
  if (found && found->somebody_waits) {
    next_notice_ *= 2;
    return Finding{*std::move(found), false};
  }
  if (!hang_within(options_.notice_after)) next_notice_ = options_.notice_after;
  return std::nullopt;
}

}  // namespace lockstep::launch
