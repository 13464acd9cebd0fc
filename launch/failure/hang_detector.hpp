#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "failure/hang.hpp"

namespace lockstep::launch {

struct HangOptions {
  /// When a standstill is told for the first time; then after twice the time, and so on.
  std::chrono::milliseconds notice_after = std::chrono::seconds(30);
  /// When it ends the job; 0: never.
  std::chrono::milliseconds timeout{0};
  /// Whether these are all ranks of the job. Otherwise ranks that all wait prove nothing: the one that they
  /// wait for may be one that is not seen.
  bool sees_all_ranks = true;
};

/// When a standstill of an attempt is told, and when it ends the job. Knows no clock.
class HangDetector {
 public:
  explicit HangDetector(const HangOptions& options);

  struct Finding {
    Hang standstill;
    /// It has lasted for the timeout. Told once, unless some rank moves meanwhile.
    bool ends_job = false;
  };
  /// To be called about once a second.
  std::optional<Finding> look(const std::vector<RankStatus>& now);

 private:
  std::optional<Hang> standstill(const std::vector<RankStatus>& now, std::chrono::milliseconds limit) const;

  HangOptions options_;
  std::chrono::milliseconds next_notice_;
  bool ended_ = false;
};

}  // namespace lockstep::launch
