#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::comm {

/// CLOCK_MONOTONIC of this host, in nanoseconds.
std::int64_t monotonic_now() noexcept;

/// A stretch of the program's own: trace::Range.
struct SpanRecord {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  long thread = 0;
};

/// The last stretches of this process. Any thread.
class SpanLog {
 public:
  void add(SpanRecord span);
  std::vector<SpanRecord> spans() const;

 private:
  mutable std::mutex mutex_;
  std::vector<SpanRecord> spans_;
  std::size_t next_ = 0;
};

/// Those of this process: spans are the program's, and belong to no group.
SpanLog& process_spans();

}  // namespace lockstep::comm
