#include "barrier_look.hpp"

#include <algorithm>

#include "shm_backend.hpp"
#include "store_barrier.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = BarrierLook::Milliseconds;

/// How long it waits for the answers of the others.
constexpr Milliseconds kAnswerTime{1000};
constexpr Milliseconds kLongestPause = std::chrono::seconds(30);

/// A collective that `report`'s rank is in, and this rank, which has begun `own`, has not begun: "" where
/// there is none. One that failed there when it began is none.
std::string ahead(const RankReport::Group& report, std::uint64_t own) {
  const auto& progress = report.progress;
  const bool is_in_one = progress.collectives + progress.messages > progress.finished;
  if (progress.collectives <= own || !is_in_one) return "";
  const auto next = report.recent.find(own + 1);
  return (next == report.recent.end() ? "collective" : next->second) + " #" + std::to_string(own + 1);
}

}  // namespace

std::string BarrierLook::operator()(const std::vector<int>& missing, Milliseconds waited) {
  if (std::string gone = gone_from_memory(group_, missing); !gone.empty()) return gone;
  if (!diagnostics_.watch || waited < next_question_) return "";
  next_question_ = waited + std::min(waited, kLongestPause);
  return ask(missing);
}

void BarrierLook::tell_the_others(const std::string& words) const noexcept {
  if (diagnostics_.watch) diagnostics_.watch->say_departure("stopped: " + words);
  announce_failure(group_, words);
}

std::string BarrierLook::ask(const std::vector<int>& missing) const {
  const Whereabouts found = diagnostics_.watch->ask(kAnswerTime);
  const FlightRecorder& recorder = *diagnostics_.recorder;
  const std::uint64_t own = recorder.progress(recorder.find_group(path_)).collectives;
  for (const int rank : missing) {
    const std::string name = list_ranks({rank});
    if (const auto gone = found.departed.find(rank); gone != found.departed.end())
      return name + " " + gone->second;
    const auto report = found.reports.find(rank);
    if (report == found.reports.end()) continue;
    const auto group = report->second.groups.find(path_);
    if (group == report->second.groups.end()) continue;
    const std::string collective = ahead(group->second, own);
    if (collective.empty()) continue;
    return name + " is in " + collective + ", which this rank has not called: their numbers of batches " +
           "differ, or one took another branch. Every rank must make the same calls in the same order";
  }
  return "";
}

}  // namespace lockstep::comm
