#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace lockstep::shm {

/// What one rank writes and others read in a loop has a cache line of its own.
inline constexpr std::size_t kLine = 64;

/// What the ranks of a host wait on: lies in shared memory.
struct alignas(kLine) FutexEvent {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> sleepers;
};

// std::atomic's own wait() is for threads of one process: it keeps who waits in memory of the process, and
// its futex is private.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

inline constexpr std::chrono::milliseconds kSlice{50};  // How often a sleeper checks that the others live.

/// Sleeps while the word holds `expected`, at most for kSlice; may wake for no reason.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  const timespec time{0, std::chrono::nanoseconds(kSlice).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

/// Wakes everybody who sleeps on the word, in any process.
inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Tells the CPU that this is a waiting loop.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/// The part of a wait before sleeping. With a CPU for each rank it spins; else it yields the CPU between two
/// tests. It adapts: where it does not help, because ranks, or threads beside them, outnumber the CPUs, the
/// rank sleeps at once, and tries anew in every kRetry-th wait. `Clock`: tests have their own.
template <class Clock>
class BasicSpinner {
 public:
  static constexpr std::chrono::microseconds kYieldTime{200};  // A few times as long as being woken takes.
  static constexpr unsigned kRetry = 16;

  explicit BasicSpinner(bool has_cpu_per_rank) : has_cpu_per_rank_(has_cpu_per_rank) {}

  /// Whether done() came true meanwhile.
  template <class Done>
  bool wait(Done&& done) {
    if (done()) return true;
    if (++waits_ % kRetry == 0) {
      spins_ = kMaxSpins;
      yields_ = true;
    }
    return has_cpu_per_rank_ ? spin(done) : yields_ && yield(done);
  }

 private:
  template <class Done>
  bool spin(Done&& done) {
    for (int i = 0; i < spins_; ++i) {
      pause_cpu();
      if (!done()) continue;
      spins_ = std::min(kMaxSpins, spins_ + kMaxSpins / 8);
      return true;
    }
    spins_ /= 2;
    return false;
  }

  /// For a time and not a number of times: a yield takes a fraction of a microsecond, and several may pass
  /// before a rank of another scheduling group gets the CPU (a cgroup; a session, where Linux schedules by
  /// autogroups). A thread that computes keeps the CPU for milliseconds: then it is better to sleep, because
  /// the scheduler prefers who is woken.
  template <class Done>
  bool yield(Done&& done) {
    const auto end = Clock::now() + kYieldTime;
    while (yields_) {
      ::sched_yield();
      yields_ = Clock::now() < end;
      if (done()) return true;
    }
    return false;
  }

  static constexpr int kMaxSpins = 2000;  // About as long as sleeping and being woken.

  bool has_cpu_per_rank_;
  int spins_ = kMaxSpins;
  bool yields_ = true;
  unsigned waits_ = 0;
};
using Spinner = BasicSpinner<std::chrono::steady_clock>;

/// Returns when done(). `check` is called about every kSlice, and throws when there is nothing to wait for.
template <class Done, class Check>
void wait_on(FutexEvent& event, Spinner& spinner, Done&& done, Check&& check) {
  if (spinner.wait(done)) return;
  for (;;) {
    // Sequentially consistent, in this order: notify() may then skip the system call when nobody sleeps.
    event.sleepers.fetch_add(1);
    const std::uint32_t seen = event.word.load();
    const bool over = done();
    if (!over) futex_wait(event.word, seen);
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
