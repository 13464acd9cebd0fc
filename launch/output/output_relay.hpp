#pragma once

#include <list>
#include <string>

#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Passes on what ranks write, in whole lines with the rank in front, so that lines of several ranks never
/// mix; and keeps an untouched copy in a file where one is asked for. For one thread.
class OutputRelay {
 public:
  /// Becomes readable when there is something to pass on; -1 as long as `open` was not called.
  int descriptor() const noexcept { return poll_.get(); }

  /// A new stream: returns the end for the rank to write to. `console` is where lines go (1 or 2), `prefix`
  /// stands in front of each, `copy` may be empty. Throws lockstep::Error.
  net::FileDescriptor open(int console, std::string prefix, net::FileDescriptor copy);

  /// Passes on a part of what is there, without waiting.
  void pump();

  /// Passes on all that is there, without waiting.
  void flush();

  /// Passes on what is left, half lines too, and closes all streams. Writers that still run get SIGPIPE.
  void finish();

 private:
  struct Stream {
    net::FileDescriptor source;
    net::FileDescriptor copy;
    int console = 1;
    std::string prefix;
    std::string partial;
  };

  /// False at the end of the stream, or when nothing is there for now.
  static bool pass_on(Stream& stream);
  static void write_lines(Stream& stream, bool all);

  net::FileDescriptor poll_;
  std::list<Stream> streams_;
};

}  // namespace lockstep::launch
