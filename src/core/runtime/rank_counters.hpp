#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// What a rank's process has counted since its start.
struct RankCounters {
  /// Samples that its data loaders gave to the program.
  std::uint64_t samples = 0;
  /// Nanoseconds in which its threads waited for other ranks.
  std::uint64_t waited = 0;
};

// The launcher reads them from the second page of the rank's heartbeat file, which both have mapped: counting
// takes some nanoseconds, never waits and never fails. A process that does not own the heartbeat counts in
// its own memory. Every function is *Local*; any thread.

void count_samples(std::uint64_t count) noexcept;

/// The time between them is one in which this thread waited. Pairs within another pair of the thread do not
/// count again.
void begin_wait() noexcept;
void end_wait() noexcept;

/// Nanoseconds that this thread has waited, without a wait that it is in.
std::int64_t thread_waited() noexcept;

/// Calls both.
class WaitTime {
 public:
  WaitTime() noexcept { begin_wait(); }
  ~WaitTime() { end_wait(); }
  WaitTime(const WaitTime&) = delete;
  WaitTime& operator=(const WaitTime&) = delete;
};

/// This process's own.
RankCounters rank_counters() noexcept;

/// For a launcher: makes room for them in a heartbeat file. Where a limit of file sizes leaves none, a rank
/// counts in its own memory, and read_rank_counters() finds nothing.
void add_rank_counters(int heartbeat_file) noexcept;
/// For a launcher: those of a rank; nothing if its file is missing, truncated or of another kind. Never
/// waits.
std::optional<RankCounters> read_rank_counters(const std::string& heartbeat_file);

}  // namespace lockstep
