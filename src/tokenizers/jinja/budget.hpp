#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace lockstep::jinja {

/// What ends a rendering. The interpreter adds the template's name and line.
struct Failure {
  std::string message;
};

[[noreturn]] void fail(std::string message);

/// What a template may still do. Templates come from strangers: each step, each byte read and each byte made
/// is paid for before it happens, so that one that would hang or fill the memory fails instead.
class Budget {
 public:
  Budget(std::uint64_t steps, std::uint64_t bytes) : steps_(steps), bytes_(bytes) {}
  static Budget unlimited() {
    return {std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max()};
  }

  void step(std::uint64_t count = 1) {
    if (count > steps_) fail_steps();
    steps_ -= count;
  }
  /// Bytes that are searched, compared or counted.
  void read(std::size_t bytes) { step(1 + bytes / 256); }
  /// Bytes of a new value.
  void make(std::uint64_t bytes) {
    if (bytes > bytes_) fail_bytes();
    bytes_ -= bytes;
  }

 private:
  [[noreturn]] static void fail_steps();
  [[noreturn]] static void fail_bytes();

  std::uint64_t steps_;
  std::uint64_t bytes_;
};

/// A text that grows within a budget.
class Text {
 public:
  explicit Text(Budget& budget) : budget_(budget) {}

  void add(std::string_view more) {
    budget_.make(more.size());
    text_ += more;
  }
  void add(std::size_t count, std::string_view more);
  std::string take() { return std::move(text_); }
  Budget& budget() { return budget_; }

 private:
  Budget& budget_;
  std::string text_;
};

}  // namespace lockstep::jinja
