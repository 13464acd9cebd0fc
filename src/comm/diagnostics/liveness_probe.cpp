#include "comm/diagnostics/liveness_probe.hpp"

#include <algorithm>

#include "comm/backend/cpu_backend.hpp"
#include "comm/store_barrier.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = LivenessProbe::Milliseconds;

/// How long it waits for the answers of the others.
constexpr Milliseconds kProbeTime{1000};
constexpr Milliseconds kLongestProbePause = std::chrono::seconds(30);

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

std::string LivenessProbe::operator()(const std::vector<int>& missing, Milliseconds waited) {
  if (std::string gone = gone_from_memory(group_, missing); !gone.empty()) return gone;
  if (!diagnostics_.monitor || waited < next_question_) return "";
  next_question_ = waited + std::min(waited, kLongestProbePause);
  return ask(missing);
}

void LivenessProbe::tell_the_others(const std::string& words) const noexcept {
  if (diagnostics_.monitor) diagnostics_.monitor->announce_departure("stopped: " + words);
  announce_failure(group_, words);
}

std::string LivenessProbe::ask(const std::vector<int>& missing) const {
  const PeerStatus found = diagnostics_.monitor->ask(kProbeTime);
  const FlightRecorder& recorder = *diagnostics_.recorder;
  const int own_group = recorder.find_group(path_);  // -1: it carries no CPU tensors.
  const std::uint64_t own = own_group < 0 ? 0 : recorder.progress(own_group).collectives;
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
