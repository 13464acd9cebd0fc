#include "agent/still_report.hpp"

#include <algorithm>

namespace lockstep::launch {
namespace {

/// Nothing has happened to the rank between the two looks.
bool unchanged(const RankStatus& one, const RankStatus& other) {
  if (one.status != other.status || one.beat.has_value() != other.beat.has_value()) return false;
  return !one.beat || one.beat->beat_time == other.beat->beat_time;
}

}  // namespace

bool StillReport::is_outdated(const std::vector<RankStatus>& now) const {
  return !std::equal(now.begin(), now.end(), told_.begin(), told_.end(), unchanged);
}

std::optional<std::vector<RankStatus>> StillReport::news(const std::vector<RankStatus>& now) {
  const bool still = std::all_of(now.begin(), now.end(), [this](const RankStatus& view) {
    return view.status || (view.beat && view.still >= after_);
  });
  if (still ? !is_outdated(now) : told_.empty()) return std::nullopt;
  told_ = still ? now : std::vector<RankStatus>();
  return told_;
}

}  // namespace lockstep::launch
