#pragma once

#include <functional>
#include <string>
#include <utility>

#include "net/deadline.hpp"

namespace lockstep::net {

/// At most one line a second, however many are given; the next one says how many were left out.
class RateLimitedLog {
 public:
  explicit RateLimitedLog(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}

  void line(const std::function<std::string()>& text) {
    if (!sink_) return;
    const auto now = Clock::now();
    if (now < next_) {
      ++left_out_;
      return;
    }
    next_ = now + std::chrono::seconds(1);
    const auto left_out = std::exchange(left_out_, 0);
    sink_(text() + (left_out == 0 ? "" : " (and " + std::to_string(left_out) + " more lines like this)"));
  }

 private:
  std::function<void(const std::string&)> sink_;
  Clock::time_point next_{};
  std::size_t left_out_ = 0;
};

}  // namespace lockstep::net
