#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "failure/rank_status.hpp"

namespace lockstep::launch {

/// What a node tells the coordinator of its ranks, which judges for all nodes: nothing while any of them
/// moves, then how they stand, and again when something about them changes.
class StillReport {
 public:
  /// `after`: how long they must have been still.
  explicit StillReport(std::chrono::milliseconds after) : after_(after) {}

  /// What is to be told now; an empty list: they move again. Nothing: no news.
  std::optional<std::vector<RankStatus>> news(const std::vector<RankStatus>& now);
  /// Whether what was told last is so no more.
  bool is_outdated(const std::vector<RankStatus>& now) const;

 private:
  std::chrono::milliseconds after_;
  std::vector<RankStatus> told_;
};

}  // namespace lockstep::launch
