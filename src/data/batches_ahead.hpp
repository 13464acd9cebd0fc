#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "data/stream_parts.hpp"

namespace lockstep {

/// A batch that was read ahead, or an exception; neither at the end.
template <typename Batch>
struct BatchAhead {
  std::optional<Batch> batch = {};
  std::exception_ptr failure = {};
  /// The positions of the parts after it.
  PartPositions parts = {};
};

/// Reads batches ahead, so that the end is known in advance.
template <typename Batch>
class BatchesAhead {
 public:
  explicit BatchesAhead(std::int64_t depth) : depth_(depth) {}

  /// The next batch. Calls `read` until `depth` more are available, and not again after the end or a failure.
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

  /// The number of batches left, if the end is known.
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
