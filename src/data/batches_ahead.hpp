#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "stream_parts.hpp"

namespace lockstep {

/// A batch that was read before its turn: or what went wrong, or neither at the end.
template <typename Batch>
struct BatchAhead {
  std::optional<Batch> batch = {};
  std::exception_ptr failure = {};
  /// Where the parts are behind it.
  PartPositions parts = {};
};

/// Batches that are read ahead so that the end is seen before it comes.
template <typename Batch>
class BatchesAhead {
 public:
  explicit BatchesAhead(std::int64_t depth) : depth_(depth) {}

  /// The next one; `read` is called until there are `depth` behind it, and not again after the end or a
  /// failure.
  template <typename Read>
  BatchAhead<Batch> next(const Read& read) {
    while (!ended_ && std::ssize(ahead_) <= depth_) {
      ahead_.push_back(read());
      ended_ = !ahead_.back().batch;
      failed_ = ahead_.back().failure != nullptr;
    }
    if (ahead_.empty()) return {};
    auto first = std::move(ahead_.front());
    ahead_.pop_front();
    return first;
  }

  /// The batches that are left, where the end is in sight.
  std::optional<std::int64_t> left() const {
    if (!ended_ || failed_) return std::nullopt;
    return ahead_.empty() ? 0 : std::ssize(ahead_) - 1;
  }

 private:
  std::int64_t depth_;
  std::deque<BatchAhead<Batch>> ahead_;
  bool ended_ = false;
  bool failed_ = false;
};

}  // namespace lockstep
