#pragma once

#include <algorithm>

#include "shm/futex.hpp"
#include "shm/layout.hpp"

namespace lockstep::shm {

/// Waits first by looking again and again, then asleep. How long it looks adapts: where looking does not
/// help, because ranks, or threads beside them, outnumber the CPUs, it stops, and tries anew now and then.
class Spinner {
 public:
  explicit Spinner(bool allowed) : budget_(allowed ? kMost : 0), allowed_(allowed) {}

  template <class Done>
  bool spin(Done&& done) {
    if (done()) return true;
    if (!allowed_) return false;
    if (++waits_ % kRetry == 0) budget_ = kMost;
    for (int i = 0; i < budget_; ++i) {
      pause_cpu();
      if (!done()) continue;
      budget_ = std::min(kMost, budget_ + kMost / 8);
      return true;
    }
    budget_ /= 2;
    return false;
  }

 private:
  static constexpr int kMost = 2000;  // About the cost of sleeping and being woken.
  static constexpr unsigned kRetry = 16;

  int budget_;
  unsigned waits_ = 0;
  bool allowed_;
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
