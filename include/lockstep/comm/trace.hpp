#pragma once

#include <cstdint>
#include <string>

namespace lockstep::trace {

/// A named range of the program for traces. It lasts as long as the object.
///
///     const trace::Range range("validation");
///
/// The process records the last 20,000 ranges. They are part of every trace (ProcessGroup::write_trace,
/// LOCKSTEP_TRACE_DIR); `lockstep trace --chrome` shows them on their own track. If the CUDA library is
/// loaded they are also NVTX ranges. Costs well under a microsecond. *Local*; any thread, but the range must
/// end in the thread in which it began.
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
