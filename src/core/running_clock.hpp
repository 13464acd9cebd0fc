#pragma once

#include <chrono>

namespace lockstep {

/// A monotonic clock that stands still while this process does not run: it was stopped (SIGSTOP, a suspended
/// Slurm job), frozen in its cgroup, held by a debugger, or its virtual machine was paused. Deadlines, and
/// the silence of others, are measured with it: whoever was paused has heard nobody, and blames nobody for
/// that. Up to 1.25 s of each pause count as running, so that a busy machine's delays do.
///
/// A thread that wakes up four times a second notices the pauses; the first call of now() starts it. Without
/// it (it cannot be started, or this is the child of a fork) the clock is std::chrono::steady_clock. Its time
/// points are of a type of their own, so that they are not compared with other clocks'. *Local*; any thread.
class RunningClock {
 public:
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunningClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;

  /// What the clock showed at a time of CLOCK_MONOTONIC, which another process of this host may have read.
  static time_point at(std::chrono::steady_clock::time_point time) noexcept;
};

}  // namespace lockstep
