#pragma once

#include <functional>
#include <string>
#include <string_view>

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
  std::size_t take_lines(const Take& take);

  std::string partial_;
};

}  // namespace lockstep::launch
