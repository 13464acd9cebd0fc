#include "failure/hang.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::launch {
namespace {

using Views = std::vector<const RankStatus*>;
using std::chrono::milliseconds;

template <class Condition>
Views those(const Views& views, const Condition& condition) {
  Views result;
  std::copy_if(views.begin(), views.end(), std::back_inserter(result),
               [&](const RankStatus* view) { return condition(*view); });
  return result;
}

Views pointers(const std::vector<RankStatus>& views) {
  Views result;
  for (const auto& view : views) result.push_back(&view);
  return result;
}

/// What keeps a process in this state from doing anything; empty: nothing does.
std::string held_text(char state) {
  if (state == 'T') return "stopped by a signal (SIGSTOP, SIGTSTP): SIGCONT lets it go on";
  if (state == 't') return "held by a debugger";
  if (state == 'D') return "waiting for a device or a file system, in the kernel";
  return "";
}

bool left(const RankStatus& view) { return view.beat && view.status == 0; }
bool is_held(const RankStatus& view) { return !held_text(view.process_state).empty(); }
bool works(const RankStatus& view) { return view.beat->activity == Activity::working; }

std::string rank_list(const Views& views) {
  constexpr std::size_t kShown = 16;
  std::string text = views.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(views.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", views[i]->rank);
  }
  return views.size() > kShown ? fmt::format("{} and {} more", text, views.size() - kShown) : text;
}

std::string seconds(milliseconds time) { return fmt::format("{} s", time.count() / 1000); }

std::string stuck_text(const RankStatus& view) {
  const std::string head = fmt::format("rank {} ({}) ", view.rank, view.place);
  if (left(view)) return head + fmt::format("left at step {} (exit code 0)", view.beat->step);
  const std::string held = held_text(view.process_state);
  return head + "has not moved for " + seconds(view.still) + ": " +
         (held.empty() ? "" : "it is " + held + "; ") + "last seen in " + view.beat->text();
}

/// "ranks 0, 1 wait in all_reduce #412 for 30 s", "rank 2 is in forward, step 57 for 30 s": a part for each
/// place.
std::vector<std::string> status_lines(const Views& views) {
  std::map<std::string, Views> places;
  for (const auto* view : views) places[view->beat->text()].push_back(view);
  std::vector<std::string> texts;
  for (const auto& [place, ranks] : places) {
    milliseconds shortest = ranks.front()->still;
    for (const auto* view : ranks) shortest = std::min(shortest, view->still);
    const bool is_one = ranks.size() == 1;
    const char* verb = works(*ranks.front()) ? (is_one ? "is" : "are") : (is_one ? "waits" : "wait");
    texts.push_back(fmt::format("{} {} in {} for {}", rank_list(ranks), verb, place, seconds(shortest)));
  }
  return texts;
}

/// The ranks of the fewest steps, where steps differ.
Views behind(const Views& views) {
  const auto by_step = [](const RankStatus* one, const RankStatus* other) {
    return one->beat->step < other->beat->step;
  };
  const auto [least, most] = std::minmax_element(views.begin(), views.end(), by_step);
  const auto step = (*least)->beat->step;
  if (step == (*most)->beat->step) return {};
  return those(views, [&](const RankStatus& view) { return view.beat->step == step; });
}

/// The ranks that are not where most are.
Views elsewhere(const Views& views) {
  std::map<std::string, int> places;
  for (const auto* view : views) ++places[view->beat->text()];
  const auto most = std::max_element(places.begin(), places.end(), [](const auto& one, const auto& other) {
    return one.second < other.second;
  });
  return those(views, [&](const RankStatus& view) { return view.beat->text() != most->first; });
}

Views blamed(const Views& all, const Views& running) {
  for (auto found : {those(running, is_held), those(running, works), those(all, left), behind(running),
                     elsewhere(running)}) {
    if (!found.empty()) return found;
  }
  return {};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

}  // namespace

std::optional<Hang> find_hang(const std::vector<RankStatus>& views, milliseconds limit) {
  const Views all = pointers(views);
  const Views running = those(all, [](const RankStatus& view) { return !view.status; });
  const auto stands = [&](const RankStatus* view) { return view->beat && view->still >= limit; };
  if (running.empty() || !std::all_of(running.begin(), running.end(), stands)) return std::nullopt;
  const Views stuck = blamed(all, running);
  const auto is_stuck = [&](const RankStatus& view) {
    return std::count(stuck.begin(), stuck.end(), &view) > 0;
  };
  const Views others = those(running, [&](const RankStatus& view) { return !is_stuck(view); });
  Hang found;
  std::vector<std::string> parts;
  for (const auto* view : stuck) {
    found.stuck.push_back(view->rank);
    parts.push_back(stuck_text(*view));
  }
  const auto waits = [](const RankStatus* view) { return !works(*view); };
  found.is_certain = std::any_of(stuck.begin(), stuck.end(), [](const RankStatus* view) {
    return is_held(*view) || left(*view) || works(*view);
  });
  found.somebody_waits = std::any_of(running.begin(), running.end(), waits);
  for (auto& part : status_lines(others)) parts.push_back(std::move(part));
  found.text = joined(parts);
  if (stuck.empty()) found.text += "; no rank is behind: look at the network and at the host of rank 0";
  return found;
}

std::string early_leavers(const std::vector<RankStatus>& views) {
  const Views all = pointers(views);
  const Views gone = those(all, left);
  const Views waited = those(all, [](const RankStatus& view) {
    return view.beat && view.status && *view.status != 0 && view.beat->activity != Activity::working;
  });
  if (gone.empty() || waited.empty()) return "";
  std::vector<std::string> parts;
  for (const auto* view : gone) {
    parts.push_back(fmt::format("rank {} left at step {} (exit code 0)", view->rank, view->beat->step));
  }
  return fmt::format("{} while rank {} was in {}", joined(parts), waited.front()->rank,
                     waited.front()->beat->text());
}

HangDetector::HangDetector(const HangOptions& options)
    : options_(options), next_notice_(options.notice_after) {}

std::optional<Hang> HangDetector::hang_within(const std::vector<RankStatus>& now,
                                              std::chrono::milliseconds limit) const {
  auto found = find_hang(now, limit);
  return found && (options_.sees_all_ranks || found->is_certain) ? found : std::nullopt;
}

std::optional<HangDetector::Finding> HangDetector::look(const std::vector<RankStatus>& now) {
  auto ending = options_.timeout.count() > 0 ? hang_within(now, options_.timeout) : std::nullopt;
  const bool told = std::exchange(ended_, ending.has_value());
  if (ending && !told) return Finding{*std::move(ending), true};
  auto found = hang_within(now, next_notice_);
  if (found && found->somebody_waits) {
    next_notice_ *= 2;
    return Finding{*std::move(found), false};
  }
  if (!hang_within(now, options_.notice_after)) next_notice_ = options_.notice_after;
  return std::nullopt;
}

}  // namespace lockstep::launch
