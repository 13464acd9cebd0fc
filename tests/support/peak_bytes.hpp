#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::testing {

/// The most bytes of tensors that this thread has had beside those before.
class PeakBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

  template <class Action>
  static std::int64_t of(const Action& action) {
    const auto info = std::make_shared<PeakBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, info);
    action();
    return info->peak();
  }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

}  // namespace lockstep::testing
