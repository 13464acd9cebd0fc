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

/// Data that one rank writes and others poll is in a separate cache line.
inline constexpr std::size_t kLine = 64;

/// An event that the ranks of a host wait for, in shared memory.
struct alignas(kLine) FutexEvent {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> sleepers;
};

// std::atomic's wait() works only for threads of one process: it keeps its waiters in process memory, and its
// futex is private.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

inline constexpr std::chrono::milliseconds kSlice{50};  // How often a sleeper checks on the others.

/// Sleeps while the word holds `expected`, at most for kSlice; may wake spuriously.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  const timespec time{0, std::chrono::nanoseconds(kSlice).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

/// Wakes all sleepers of the word, in any process.
inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// A hint to the CPU that this is a spin loop.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/// The part of a wait before sleeping. If every rank has its own CPU it spins, otherwise it yields the CPU
/// between two tests. It adapts: if this does not help, because there are more ranks or other threads than
/// CPUs, the rank sleeps immediately and retries in every kRetry-th wait. `Clock`: replaced by tests.
template <class Clock>
class BasicSpinner {
 public:
  static constexpr std::chrono::microseconds kYieldTime{200};  // A few times as long as a wakeup.
  static constexpr unsigned kRetry = 16;

  explicit BasicSpinner(bool has_cpu_per_rank) : has_cpu_per_rank_(has_cpu_per_rank) {}

  /// Whether done() became true.
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

  /// Limited by time and not by count: a yield takes a fraction of a microsecond, and several may be needed
  /// before a rank of another scheduling group (a cgroup, or a session if Linux uses autogroups) gets the
  /// CPU. A computing thread keeps the CPU for milliseconds; sleeping is then better, because the scheduler
  /// prefers threads that wake up.
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

  static constexpr int kMaxSpins = 2000;  // About as long as sleeping and waking up.

  bool has_cpu_per_rank_;
  int spins_ = kMaxSpins;
  bool yields_ = true;
  unsigned waits_ = 0;
};
using Spinner = BasicSpinner<std::chrono::steady_clock>;

/// Returns when done() is true. `check` is called about every kSlice and throws if waiting is pointless.
template <class Done, class Check>
void wait_on(FutexEvent& event, Spinner& spinner, Done&& done, Check&& check) {
  if (spinner.wait(done)) return;
  for (;;) {
    // Sequentially consistent, in this order, so that notify() can skip the system call without sleepers.
    event.sleepers.fetch_add(1);
    const std::uint32_t seen = event.word.load();
    const bool over = done();
    if (!over) futex_wait(event.word, seen);
    event.sleepers.fetch_sub(1);
    if (over || done()) return;
    check();
  }
}

/// To be called after the store that others wait for.
inline void notify(FutexEvent& event) {
  if (event.sleepers.load() == 0) return;
  event.word.fetch_add(1);
  futex_wake_all(event.word);
}

}  // namespace lockstep::shm
