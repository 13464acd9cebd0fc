#include "core/running_clock.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "core/runtime/signal_free_thread.hpp"

namespace lockstep {
namespace {

using Nanoseconds = std::int64_t;  // Since the beginning of CLOCK_MONOTONIC.

constexpr std::chrono::milliseconds kTick{250};
/// The most that counts between two ticks.
constexpr Nanoseconds kLongestGap = std::chrono::nanoseconds(std::chrono::milliseconds(1250)).count();
constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
/// Older pauses are forgotten; at() then counts them as time before all others.
constexpr std::size_t kMostPauses = 256;

Nanoseconds steady_now() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Pause {
  Nanoseconds begin;
  Nanoseconds end;
  Nanoseconds lost_before;
};

// The clock shows min(monotonic - lost, limit). The ticking thread moves the limit ahead of the present at
// each tick. In a pause nobody moves it: a thread that runs again before the ticking one finds the clock at
// the limit. The late tick then adds to `lost` what is beyond it, so that the clock goes on from there.
// Invariant: monotonic - lost = limit at that moment. `lost` is written before `limit` and read after it, so
// a reader sees either pair, or the new `lost` with the old limit, which are equal: the clock never goes
// back.
struct ClockState {
  std::atomic<Nanoseconds> lost{0};
  std::atomic<Nanoseconds> limit{kNever};
};
ClockState clock_state;

struct PauseHistory {
  std::mutex mutex;
  std::deque<Pause> pauses;
};

/// Never destroyed: threads may ask while the process ends.
PauseHistory& pause_history() {
  static auto& all = *new PauseHistory();
  return all;
}

void keep_pause(const Pause& pause) {
  const std::lock_guard lock(pause_history().mutex);
  pause_history().pauses.push_back(pause);
  if (pause_history().pauses.size() > kMostPauses) pause_history().pauses.pop_front();
}

[[noreturn]] void tick_forever() {
  for (Nanoseconds last = steady_now();;) {
    const Nanoseconds before = clock_state.lost.load(std::memory_order_relaxed);
    clock_state.limit.store(last + kLongestGap - before, std::memory_order_release);
    std::this_thread::sleep_for(kTick);
    const Nanoseconds now = steady_now();
    const Pause pause{last + kLongestGap, now, before};
    if (pause.end > pause.begin) {
      keep_pause(pause);
      clock_state.lost.store(before + pause.end - pause.begin, std::memory_order_release);
    }
    last = now;
  }
}

/// Not a std::thread: that has a stack of 8 MiB, which counts as data of a process with a limit.
bool start_ticking() noexcept {
  constexpr std::size_t kStackBytes = 256 << 10;
  try {
    pause_history();
  } catch (const std::exception&) {
    return false;
  }
  // A child of fork() has no ticking thread.
  pthread_atfork(nullptr, nullptr, [] { clock_state.limit.store(kNever); });
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const SignalsBlocked blocked;
  pthread_t thread{};
  const int error = pthread_create(
      &thread, &attributes,
      [](void*) -> void* {
        use_crash_stack();
        tick_forever();
      },
      nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

}  // namespace

RunningClock::time_point RunningClock::now() noexcept {
  static const bool ticks [[maybe_unused]] = start_ticking();
  const Nanoseconds latest = clock_state.limit.load(std::memory_order_acquire);
  const Nanoseconds skipped = clock_state.lost.load(std::memory_order_acquire);
  return time_point(duration(std::min(steady_now() - skipped, latest)));
}

RunningClock::time_point RunningClock::at(std::chrono::steady_clock::time_point time) noexcept {
  const Nanoseconds monotonic = std::chrono::nanoseconds(time.time_since_epoch()).count();
  const std::lock_guard lock(pause_history().mutex);
  const auto& pauses = pause_history().pauses;
  Nanoseconds skipped = pauses.empty() ? 0 : pauses.front().lost_before;
  for (const Pause& pause : pauses) {
    if (monotonic < pause.begin) break;
    skipped = pause.lost_before + std::min(monotonic, pause.end) - pause.begin;
  }
  return time_point(duration(monotonic - skipped));
}

}  // namespace lockstep
