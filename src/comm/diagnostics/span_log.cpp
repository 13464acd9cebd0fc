#include "comm/diagnostics/span_log.hpp"

#include <ctime>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr std::size_t kMostSpans = 20'000;

}  // namespace

std::int64_t monotonic_now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void SpanLog::add(SpanRecord span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < kMostSpans) return spans_.push_back(std::move(span));
  spans_[next_++ % kMostSpans] = std::move(span);
}

std::vector<SpanRecord> SpanLog::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

SpanLog& process_spans() {
  // Never destroyed: threads may end their ranges until the process is gone.
  static SpanLog* const log = new SpanLog();
  return *log;
}

}  // namespace lockstep::comm
