#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/running_clock.hpp"

namespace lockstep::net {

/// Deadlines are points on this process's own clock, which leaves out the time in which it was paused;
/// neither the wall clock nor another host's clock is used.
using Clock = RunningClock;
using Deadline = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

/// The remaining time, rounded up; 0 at or after the deadline, at most 24 hours.
inline Milliseconds left_until(Deadline deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  return std::clamp(left, Milliseconds(0), Milliseconds(std::chrono::hours(24)));
}

/// Waits until the descriptor is ready for `events` (or has an error, which the next call on it reports);
/// false at the deadline. Signals do not end the wait.
inline bool await_ready(int descriptor, short events, Deadline deadline) {
  pollfd entry{descriptor, events, 0};
  for (;;) {
    const auto left = left_until(deadline);
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (left == Milliseconds(0)) return false;
  }
}

}  // namespace lockstep::net
