#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// The last lines of a text, at most `count` of them, without the line end of the last one.
std::string last_lines_of(std::string_view text, int count);

/// The same of a file, from its last kilobytes; empty where there is no such file. *Local*.
std::string last_lines(const std::string& path, int count);

/// The end of a stream: some kilobytes, however long it is.
class Tail {
 public:
  static constexpr std::size_t kMost = 16 * 1024;

  void add(std::string_view text);
  std::string last_lines(int count) const { return last_lines_of(end(), count); }

 private:
  std::string_view end() const;

  /// Up to twice as much, so that not each line moves all the others.
  std::string text_;
};

}  // namespace lockstep::launch
