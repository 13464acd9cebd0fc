#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::metrics {

inline void check_seen(const char* metric, std::int64_t samples) {
  if (samples > 0) return;
  throw UsageError(
      std::string(metric) +
      ": no samples have been seen: call update() first, and of_all_ranks() where some ranks may "
      "have had none.");
}

}  // namespace lockstep::metrics
