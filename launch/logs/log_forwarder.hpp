#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "logs/console.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Cuts a stream into lines. A carriage return ends a line as well, so that each step of a progress bar is
/// one; what comes without an end for long is passed on in pieces.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  using Take = std::function<void(std::string_view line)>;

  /// Calls `take` for each line that is complete by now, without its end.
  void add(std::string_view text, const Take& take);
  /// The rest is a line, too.
  void finish(const Take& take);

 private:
  std::string partial_;
};

/// The end of a stream: some kilobytes, however long it is.
class Tail {
 public:
  static constexpr std::size_t kMost = 16 * 1024;

  void add(std::string_view text);
  std::string last_lines(int count) const;

 private:
  /// Up to twice as much, so that not each line moves all the others.
  std::string text_;
};

/// The last lines of a file, from its last kilobytes, without the line end of the last one; empty where there
/// is no such file. *Local*.
std::string last_lines(const std::string& path, int count);

/// Opens a file for appending, to be handed to a rank or to be written to. Throws lockstep::Error that names
/// it.
net::FileDescriptor open_log(const std::string& path);

/// A log file that the launcher writes. At its largest size it becomes `<path>.1`, in place of the one
/// before, and a new one is begun. For one thread.
class LogFile {
 public:
  /// `most_bytes` 0: it grows without end. Throws lockstep::Error that names the file.
  LogFile(std::string path, std::int64_t most_bytes);

  /// A full disk is no reason to end a job: false for the first text that could not be written, and then the
  /// file ends there.
  bool write(std::string_view text);

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  net::FileDescriptor file_;
};

/// What is done with one stream of a rank that passes through the launcher.
struct ForwardedStream {
  int local_rank = 0;
  /// 1: standard output, 2: standard error.
  int number = 1;
  /// Whether its lines go to the console.
  bool shown = true;
  /// What stands in front of each line.
  std::string prefix = {};
  /// Gets an untouched copy.
  std::optional<LogFile> copy = {};
  /// Gets, with the prefix, the lines that hold any of the texts.
  std::optional<LogFile> filtered = {};
  std::vector<std::string> filters = {};
};

/// What stands in front of a rank's lines: `pattern` with ${role_name}, ${rank} and ${local_rank} (or $rank)
/// replaced, or torchrun's "[role0]:" when it is empty.
std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank);

/// Passes on what ranks write, in whole lines with the rank in front, so that lines of several ranks never
/// mix; and keeps an untouched copy in a file where one is asked for. It never waits for the console. For one
/// thread.
class LogForwarder {
 public:
  /// The console must outlive it.
  explicit LogForwarder(Console& console) : console_(console) {}

  Console& console() const noexcept { return console_; }

  /// Becomes readable when there is something to pass on; -1 as long as `open` was not called.
  int descriptor() const noexcept { return poll_.get(); }

  /// A new stream: returns the end for the rank to write to. Throws lockstep::Error.
  net::FileDescriptor open(ForwardedStream stream);

  /// Passes on a part of what is there, without waiting.
  void pump();

  /// Passes on all that is there, without waiting.
  void flush();

  /// Passes on all that is there and ends, also where some process still holds the other end.
  void finish();

  /// The last lines that the rank wrote to standard error since that was opened, as far as they passed here.
  std::string last_lines(int local_rank, int count) const;

 private:
  struct Stream {
    net::FileDescriptor source;
    ForwardedStream to;
    std::string painted_prefix;
    LineSplitter splitter = {};
  };

  /// False at the end of the stream, or when nothing is there for now.
  bool pass_on(Stream& stream);
  /// `last`: nothing comes any more, the rest is a line, too.
  void pass_on_lines(Stream& stream, std::string_view text, bool last);
  void write(LogFile& file, std::string_view text);

  Console& console_;
  net::FileDescriptor poll_;
  std::list<Stream> streams_;
  /// The ends of standard error, by local rank.
  std::map<int, Tail> tails_;
};

}  // namespace lockstep::launch
