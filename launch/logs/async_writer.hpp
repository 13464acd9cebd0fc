#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::launch {

/// Writes to one of the launcher's standard streams by a thread of its own, so that a reader who stops
/// reading (a paused pager, Ctrl-S) holds neither the launcher nor the ranks. What waits is bounded: lines
/// that do not fit any more are dropped, and a line in their place says how many.
///
/// `write` and `drain` may be called by any thread.
class AsyncWriter {
 public:
  static constexpr std::size_t kMostWaiting = 16 << 20;

  /// `descriptor` stays the caller's. Its thread starts with the first text.
  explicit AsyncWriter(int descriptor, std::size_t most_waiting = kMostWaiting);
  /// Waits as `drain` does.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  /// Whole lines. Never waits.
  void write(std::string lines);
  /// The same for lines that must not be dropped: the launcher's own, which are few.
  void write_always(std::string lines);
  /// Waits until all is written, or nobody can read it any more: as long as the reader lets it wait.
  void drain();

 private:
  void push(std::string lines);
  void note_dropped();
  void run();

  const int descriptor_;
  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  /// Bytes of `waiting_` and of what is being written.
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool closing_ = false;
  /// The reader is gone: everything is thrown away.
  bool broken_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launch
