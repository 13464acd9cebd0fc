#pragma once

#include <ostream>
#include <sstream>
#include <string>

#include "lockstep/core/environment.hpp"
#include "logs/async_writer.hpp"

namespace lockstep::launch {

/// The launcher's standard output and standard error, and its own words on the latter. The destructor waits
/// until all is written.
class Console {
 public:
  /// The environment says whether colours are wanted (NO_COLOR, TERM).
  explicit Console(const Environment& environment);

  /// 1: standard output, 2: standard error.
  AsyncWriter& stream(int number) { return number == 1 ? out_ : err_; }
  /// The launcher's own words. They are handed on with each flush, and are never dropped.
  std::ostream& log() { return log_; }
  /// The text in a rank's own colour, where that stream is a terminal that has colours; else as it is.
  std::string painted(const std::string& text, int rank, int stream) const;

 private:
  class LogBuffer : public std::stringbuf {
   public:
    explicit LogBuffer(AsyncWriter& writer) : writer_(writer) {}

   protected:
    int sync() override;

   private:
    AsyncWriter& writer_;
  };

  const bool colours_;
  AsyncWriter out_;
  AsyncWriter err_;
  LogBuffer buffer_;
  std::ostream log_;
};

}  // namespace lockstep::launch
