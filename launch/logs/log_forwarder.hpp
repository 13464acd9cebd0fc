#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "logs/console.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Splits a stream into lines. A carriage return also ends a line, so that each step of a progress bar is
/// one. Very long lines are passed on in pieces.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  using Take = std::function<void(std::string_view line)>;

  /// Calls `take` for each complete line, without its end.
  void add(std::string_view text, const Take& take);
  /// Passes the rest as a line.
  void finish(const Take& take);

 private:
  std::string partial_;
};

/// The last kilobytes of a stream.
class Tail {
 public:
  static constexpr std::size_t kMost = 16 * 1024;

  void add(std::string_view text);
  std::string last_lines(int count) const;

 private:
  /// Up to twice the size, so that text is not moved for every line.
  std::string text_;
};

/// The last lines of a file, from its last kilobytes, without the final line end; empty if there is no such
/// file. *Local*.
std::string last_lines(const std::string& path, int count);

/// Opens a file for appending, for a rank or for the launcher. Throws lockstep::Error that names it.
net::FileDescriptor open_log(const std::string& path);

/// A log file that the launcher writes. Before a line that would make it larger than its maximum size it is
/// renamed to `<path>.1`, replacing the previous one, and a new file is started. A line that is written in
/// parts stays in the file in which it begins, which may thus be larger by one line. Only a line that is
/// longer than the maximum size itself is cut, so that output without line ends is limited too. Not
/// thread-safe.
class LogFile {
 public:
  /// `most_bytes` 0: unlimited. Throws lockstep::Error that names the file.
  LogFile(std::string path, std::int64_t most_bytes);

  /// A full disk does not end the job: returns false for the first text that could not be written, and writes
  /// nothing more.
  bool write(std::string_view text);

  const std::string& path() const noexcept { return path_; }

 private:
  /// How much of the text belongs to this file: all, whole lines that fit, or the rest of the line that has
  /// begun here; 0: the next file begins.
  std::size_t fitting(std::string_view text) const;
  /// False if the file cannot be renamed.
  bool begin_next();
  void count(std::string_view text);

  std::string path_;
  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  /// Of the last line, if it has no end yet.
  std::int64_t line_bytes_ = 0;
  net::FileDescriptor file_;
};

/// How one stream of a rank that passes through the launcher is handled.
struct ForwardedStream {
  int local_rank = 0;
  /// Of this rank, which may have several beside each other: see Worker::process.
  int process = 0;
  /// 1: standard output, 2: standard error.
  int number = 1;
  /// Whether its lines are shown on the console.
  bool shown = true;
  /// The prefix of each line.
  std::string prefix = {};
  /// Gets an unmodified copy.
  std::optional<LogFile> copy = {};
  /// Gets the lines that contain any of `filters`, with the prefix.
  std::optional<LogFile> filtered = {};
  std::vector<std::string> filters = {};
};

/// The prefix of a rank's lines: `pattern` with ${role_name}, ${rank} and ${local_rank} (or $rank) replaced,
/// or torchrun's "[role0]:" if it is empty.
std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank);

/// Forwards the ranks' output in whole lines with the rank in front, so that lines of several ranks never
/// mix. Optionally keeps an unmodified copy in a file. Never waits for the console. Not thread-safe.
class LogForwarder {
 public:
  /// The console must outlive it.
  explicit LogForwarder(Console& console) : console_(console) {}

  Console& console() const noexcept { return console_; }

  /// Becomes readable when there is output to forward; -1 before the first `open`.
  int descriptor() const noexcept { return poll_.get(); }

  /// Opens a stream and returns the end to which the rank writes. Throws lockstep::Error.
  net::FileDescriptor open(ForwardedStream stream);

  /// Forwards some of the available output, without blocking.
  void pump();

  /// Forwards the available output, without blocking.
  void flush();

  /// Forwards the available output and closes all streams, even if a process still holds the other end.
  void finish();

  /// The last lines of the process's standard error since it was opened, if it passes through here.
  std::string last_lines(int local_rank, int process, int count) const;

  /// Nobody will ask for the last lines of that process any more.
  void forget(int local_rank, int process) { tails_.erase({local_rank, process}); }

 private:
  struct Stream {
    net::FileDescriptor source;
    ForwardedStream to;
    std::string painted_prefix;
    LineSplitter splitter = {};
  };

  /// False at the end of the stream, or if nothing is available now.
  bool pass_on(Stream& stream);
  /// `last`: the stream has ended, so the rest is a line, too.
  void pass_on_lines(Stream& stream, std::string_view text, bool last);
  void write(LogFile& file, std::string_view text);
  /// Processes come and go as long as the job runs: what has ended holds no file.
  void drop_ended();

  Console& console_;
  net::FileDescriptor poll_;
  std::list<Stream> streams_;
  /// The ends of standard error, by local rank and process.
  std::map<std::pair<int, int>, Tail> tails_;
};

}  // namespace lockstep::launch
