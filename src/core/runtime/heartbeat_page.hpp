#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

inline constexpr char kHeartbeatMagic[8] = {'L', 'S', 'B', 'E', 'A', 'T', '0', '1'};

/// Written by one process at a time and read with read(2) by others: never mapped there, as a file that its
/// writer cuts short would kill a reader that has it mapped.
struct Heartbeat::Page {
  char magic[8];
  /// Odd while a thread writes what follows.
  std::atomic<std::uint32_t> sequence;
  /// Nobody beats yet: 0.
  std::atomic<std::int32_t> pid;
  std::atomic<std::int32_t> stack_signal;
  std::uint32_t activity;
  std::int64_t beat_time;
  std::atomic<std::uint64_t> step;
  std::uint64_t number;
  /// Not terminated when it is full.
  char what[40];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::int32_t>::is_always_lock_free);

}  // namespace lockstep
