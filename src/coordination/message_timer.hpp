#pragma once

#include <chrono>

namespace lockstep::coordination {

/// Tells a waiting rank when its next message is due: after each `interval` of waiting.
class MessageTimer {
 public:
  explicit MessageTimer(std::chrono::milliseconds interval) : interval_(interval), next_(interval) {}

  /// `waited`: since the beginning. True once for each interval.
  bool is_due(std::chrono::milliseconds waited) {
    if (waited < next_) return false;
    next_ += interval_;
    return true;
  }

 private:
  std::chrono::milliseconds interval_;
  std::chrono::milliseconds next_;
};

}  // namespace lockstep::coordination
