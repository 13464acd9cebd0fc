#include "failure/hang_detector.hpp"

#include <utility>

namespace lockstep::launch {

HangDetector::HangDetector(const HangOptions& options)
    : options_(options), next_notice_(options.notice_after) {}

std::optional<Hang> HangDetector::standstill(const std::vector<RankStatus>& now,
                                             std::chrono::milliseconds limit) const {
  auto found = find_hang(now, limit);
  return found && (options_.sees_all_ranks || found->is_certain) ? found : std::nullopt;
}

std::optional<HangDetector::Finding> HangDetector::look(const std::vector<RankStatus>& now) {
  auto ending = options_.timeout.count() > 0 ? standstill(now, options_.timeout) : std::nullopt;
  const bool told = std::exchange(ended_, ending.has_value());
  if (ending && !told) return Finding{*std::move(ending), true};
  auto found = standstill(now, next_notice_);
  if (found && found->somebody_waits) {
    next_notice_ *= 2;
    return Finding{*std::move(found), false};
  }
  if (!standstill(now, options_.notice_after)) next_notice_ = options_.notice_after;
  return std::nullopt;
}

}  // namespace lockstep::launch
