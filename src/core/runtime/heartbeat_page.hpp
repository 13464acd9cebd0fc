#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

/// The file by which a rank tells its launcher, without a system call, that it makes progress. Written by one
/// process at a time, through a mapping. An odd `sequence` means that one of its threads is writing: another
/// thread then drops its own beat instead of waiting. Other processes use read(2) instead of mapping the
/// file, because truncating it would kill a process that has it mapped.
///
/// The writer may be killed or stopped between any two stores, and a reader must never wait for it, nor take
/// a mixture of two beats for one. So beats are written to two records in turn, by the parity of their count:
///
///     beat 6   records[0] = 6      records[1] = 5      either may be read
///     beat 7   records[0] = 6      records[1] = ...    being written: its checksum does not fit yet
///              records[0] = 6      records[1] = 7      either may be read
///
/// A reader copies the page, drops records whose checksum does not fit, and takes the one with the higher
/// count. If the writer was so fast that both are torn, it reads again, at most kMaxReads times. The checksum
/// is over the whole record, so the stores need no order among each other. Fields outside the records are
/// single words, each atomic by itself. In the mapping they are accessed through field(), except for `magic`,
/// which never changes.
struct HeartbeatPage {
  /// The content of a beat.
  struct Beat {
    std::uint64_t count;  // Number of the beat.
    std::int64_t time;    // CLOCK_MONOTONIC, nanoseconds.
    std::uint64_t number;
    std::uint64_t activity;
    char what[40];  // Not terminated when it is full.
  };

  using BeatWords = std::array<std::uint64_t, sizeof(Beat) / sizeof(std::uint64_t)>;

  struct Record {
    BeatWords words;
    std::uint64_t checksum;
  };

  static constexpr char kMagic[8] = {'L', 'S', 'B', 'E', 'A', 'T', '0', '3'};

  char magic[8];
  std::uint64_t sequence;  // Odd while a thread beats; half of it is the number of beats.
  std::int64_t pid;        // 0: no process beats yet.
  std::int64_t stack_signal;
  std::uint64_t step;
  Record records[2];  // By the parity of the beat's count.

  bool has_magic() const noexcept;

  /// A member of a mapped page.
  template <class Number>
  static std::atomic_ref<Number> field(Number& number) noexcept {
    static_assert(std::atomic_ref<Number>::is_always_lock_free);
    return std::atomic_ref<Number>(number);
  }

  /// Writes the record whose turn it is. Only while `sequence` is odd by this thread's doing.
  void write_beat(const Beat& beat) noexcept;

  /// A copy of this process's own page, mapped.
  HeartbeatPage copy() noexcept;

  /// The newest complete beat of a copy; nothing if there is none. The file may contain anything.
  std::optional<Beat> newest_beat() const noexcept;
};

/// What a beat's number of an activity stands for; a number that is none, for work.
Activity activity_of(std::uint64_t number) noexcept;

/// The newest beat of the pages that `read(page)` gives, which returns false if there is no heartbeat. Reads
/// again, some times, while the writer keeps writing.
std::optional<HeartbeatRecord> newest_record(const std::function<bool(HeartbeatPage&)>& read);

}  // namespace lockstep
