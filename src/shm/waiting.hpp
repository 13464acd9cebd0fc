#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "shm/futex.hpp"
#include "shm/layout.hpp"

namespace lockstep::shm {

/// Waits first by looking again and again, then asleep. How long it looks adapts: where looking does not
/// help, because ranks, or threads beside them, outnumber the CPUs, it stops, and tries anew now and then.
class Spinner {
 public:
  explicit Spinner(bool a_cpu_each)
      : a_cpu_each_(a_cpu_each), budget_(a_cpu_each ? kMostLooks : kMostYields) {}

  template <class Done>
  bool spin(Done&& done) {
    if (done()) return true;
    if (++waits_ % kRetry == 0) budget_ = a_cpu_each_ ? kMostLooks : kMostYields;
    return a_cpu_each_ ? look(done) : yield(done);
  }

 private:
  template <class Done>
  bool look(Done&& done) {
    for (int i = 0; i < budget_; ++i) {
      pause_cpu();
      if (!done()) continue;
      budget_ = std::min(kMostLooks, budget_ + kMostLooks / 8);
      return true;
    }
    budget_ /= 2;
    return false;
  }

  /// Leaves the CPU to another rank between two looks. One that computes keeps it for milliseconds: then it
  /// is better to sleep, for who is woken is let through.
  template <class Done>
  bool yield(Done&& done) {
    const auto end = std::chrono::steady_clock::now() + kLongestYield;
    for (int i = 0; i < budget_; ++i) {
      ::sched_yield();
      const bool in_time = std::chrono::steady_clock::now() < end;
      const bool found = done();
      if (!in_time) budget_ = 0;
      if (found) return true;
    }
    budget_ = 0;
    return false;
  }

  // Each about the cost of sleeping and being woken.
  static constexpr int kMostLooks = 2000;
  static constexpr int kMostYields = 32;
  static constexpr std::chrono::microseconds kLongestYield{200};
  static constexpr unsigned kRetry = 16;

  bool a_cpu_each_;
  int budget_;
  unsigned waits_ = 0;
};

inline constexpr net::Milliseconds kSlice{50};  // How long a sleeper does not look whether others still live.

/// Returns when done(). `check` is called about every kSlice, and throws when there is nothing to wait for.
template <class Done, class Check>
void wait_on(Bell& bell, Spinner& spinner, Done&& done, Check&& check) {
  if (spinner.spin(done)) return;
  for (;;) {
    // The order of these (sequentially consistent) steps is what lets a ringer look at `sleepers` only.
    bell.sleepers.fetch_add(1);
    const std::uint32_t seen = bell.word.load();
    const bool over = done();
    if (!over) futex_wait(bell.word, seen, kSlice);
    bell.sleepers.fetch_sub(1);
    if (over || done()) return;
    check();
  }
}

/// To be called after the store that others may wait for.
inline void ring(Bell& bell) {
  if (bell.sleepers.load() == 0) return;
  bell.word.fetch_add(1);
  futex_wake_all(bell.word);
}

}  // namespace lockstep::shm
