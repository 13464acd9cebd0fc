#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// Reads lines of a tracker that are JSON objects of finite numbers, as nearly all are:
/// {"step":1,"train/loss":0.5}. A tracker repeats names in their order, so each is first compared with the
/// one that the line before had at its place. All members are *Local*.
class NumberLineReader {
 public:
  using Value = std::pair<std::string_view, double>;

  NumberLineReader() = default;
  NumberLineReader(const NumberLineReader&) = delete;
  NumberLineReader& operator=(const NumberLineReader&) = delete;

  /// False for any other line, also for a damaged one: parse_python_text() reads it, or says why it cannot.
  bool read(std::string_view line);

  /// The names and numbers of the last line that was read; valid until the next one is.
  std::span<const Value> values() const { return values_; }

 private:
  /// Names are compared with each other: for more, the general way is as fast.
  static constexpr std::size_t kMostNumbers = 32;

  /// As lines have them, with quotes and the colon. The first `known_` differ from each other.
  std::array<std::string, kMostNumbers> names_;
  std::size_t known_ = 0;
  std::vector<Value> values_;
};

}  // namespace lockstep::launch
