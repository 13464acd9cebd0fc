#pragma once

#include <cstdint>
#include <string>

namespace lockstep::trace {

/// A stretch of the program that is to be seen in traces: it lasts as long as the object lives.
///
///     const trace::Range range("validation");
///
/// The process remembers the last 20,000; they are in every trace that is written (ProcessGroup::write_trace,
/// LOCKSTEP_TRACE_DIR), and `lockstep trace --chrome` draws them in a lane of their own. Where the CUDA
/// library is loaded they are NVTX ranges too. Costs well under a microsecond. *Local*; any thread, but it
/// must end in the thread in which it began.
class Range {
 public:
  explicit Range(std::string name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::string name_;
  std::int64_t begin_;
  bool in_nvtx_;
};

}  // namespace lockstep::trace
