#pragma once

#include <fmt/core.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Writes all of it. False, with errno set, if this is impossible: the reader is gone, or the disk is full.
bool write_all(int descriptor, std::string_view text);

/// Writes to one of the launcher's standard streams on a separate thread, so that a reader who stops reading
/// (a paused pager, Ctrl-S) blocks neither the launcher nor the ranks. The buffer is limited: lines that do
/// not fit are dropped, and a line in their place reports how many.
///
/// Thread-safe.
class AsyncWriter {
 public:
  static constexpr std::size_t kMostWaiting = 16 << 20;

  /// Does not take ownership of `descriptor`. The thread starts with the first text.
  explicit AsyncWriter(int descriptor, std::size_t most_waiting = kMostWaiting);
  /// Waits until all is written or the reader is gone, however long the reader takes.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  /// Whole lines. Never blocks.
  void write(std::string lines) { add(std::move(lines), true); }
  /// The same for lines that must not be dropped: the launcher's own, which are few.
  void write_always(std::string lines) { add(std::move(lines), false); }

 private:
  void add(std::string lines, bool may_be_dropped);
  void push(std::string lines);
  void note_dropped();
  void run();

  const int descriptor_;
  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  /// Bytes in `waiting_` and in the current write.
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool closing_ = false;
  /// The reader is gone: everything is discarded.
  bool broken_ = false;
  std::thread thread_;
};

/// The launcher's standard output and standard error. Its own lines go to standard error. The destructor
/// waits until all is written.
class Console {
 public:
  /// Colors depend on the environment (NO_COLOR, TERM).
  explicit Console(const Environment& environment);

  /// 1: standard output, 2: standard error.
  AsyncWriter& stream(int number) { return number == 1 ? out_ : err_; }
  /// Prints a line of the launcher, after its name. Never dropped.
  void say(const std::string& line) { print("lockstep run: " + line + "\n"); }
  template <class... Values>
  void say(fmt::format_string<Values...> line, Values&&... values) {
    say(fmt::format(line, std::forward<Values>(values)...));
  }
  /// The same for whole lines, printed as they are.
  void print(std::string lines) { err_.write_always(std::move(lines)); }
  /// The text in the rank's color if that stream is a terminal with colors; otherwise unchanged.
  std::string painted(const std::string& text, int rank, int stream) const;

 private:
  const bool colours_;
  AsyncWriter out_;
  AsyncWriter err_;
};

}  // namespace lockstep::launch
