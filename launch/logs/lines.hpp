#pragma once

#include <functional>
#include <optional>
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

/// The last bytes of a regular file, at most `most`; nothing where there is none. Others, as a pipe that a
/// rank may have put in its place, are not read: they might block. *Local*.
std::optional<std::string> read_end(const std::string& path, std::size_t most);

/// The last lines of a file, from its last kilobytes, without the line end of the last one; empty where there
/// is no such file. *Local*.
std::string last_lines(const std::string& path, int count);

}  // namespace lockstep::launch
