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
  explicit Spinner(bool has_cpu_per_rank)
      : has_cpu_per_rank_(has_cpu_per_rank), budget_(has_cpu_per_rank ? kMaxSpins : kMaxYields) {}

  template <class Done>
  bool spin(Done&& done) {
    if (done()) return true;
    if (++waits_ % kRetry == 0) budget_ = has_cpu_per_rank_ ? kMaxSpins : kMaxYields;
    return has_cpu_per_rank_ ? look(done) : yield(done);
  }

 private:
  template <class Done>
  bool look(Done&& done) {
    for (int i = 0; i < budget_; ++i) {
      pause_cpu();
      if (!done()) continue;
      budget_ = std::min(kMaxSpins, budget_ + kMaxSpins / 8);
      return true;
    }
    budget_ /= 2;
    return false;
  }

  /// Leaves the CPU to another rank between two looks. One that computes keeps it for milliseconds: then it
  /// is better to sleep, for who is woken is let through.
  template <class Done>
  bool yield(Done&& done) {
    const auto end = std::chrono::steady_clock::now() + kMaxYieldTime;
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
  static constexpr int kMaxSpins = 2000;
  static constexpr int kMaxYields = 32;
  static constexpr std::chrono::microseconds kMaxYieldTime{200};
  static constexpr unsigned kRetry = 16;

  bool has_cpu_per_rank_;
  int budget_;
  unsigned waits_ = 0;
};

inline constexpr net::Milliseconds kSlice{50};  // How long a sleeper does not look whether others still live.

/// Returns when done(). `check` is called about every kSlice, and throws when there is nothing to wait for.
template <class Done, class Check>
void wait_on(FutexEvent& event, Spinner& spinner, Done&& done, Check&& check) {
  if (spinner.spin(done)) return;
  for (;;) {
    // The order of these (sequentially consistent) steps is what lets a notifier look at `sleepers` only.
    event.sleepers.fetch_add(1);
    const std::uint32_t seen = event.word.load();
    const bool over = done();
    if (!over) futex_wait(event.word, seen, kSlice);
    event.sleepers.fetch_sub(1);
    if (over || done()) return;
    check();
  }
}

/// To be called after the store that others may wait for.
inline void notify(FutexEvent& event) {
  if (event.sleepers.load() == 0) return;
  event.word.fetch_add(1);
  futex_wake_all(event.word);
}

}  // namespace lockstep::shm
