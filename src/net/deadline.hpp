#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace lockstep::net {

/// Deadlines are points on the clock that never jumps; no wall clock is read here, and none of another host.
using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

/// What is left, rounded up; 0 when the time has come.
inline Milliseconds left_until(Deadline deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  return std::clamp(left, Milliseconds(0), Milliseconds(std::chrono::hours(24)));
}

inline Deadline earlier(Deadline a, Deadline b) { return std::min(a, b); }

/// Waits until the descriptor is ready for `events` (or broken, which the next call on it tells); false when
/// the deadline comes first. Signals do not end the wait.
bool await_ready(int descriptor, short events, Deadline deadline);

}  // namespace lockstep::net
