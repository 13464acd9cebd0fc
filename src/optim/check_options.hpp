#pragma once

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {

/// Throws UsageError unless `fits`; `rule` describes the requirement.
inline void require(bool fits, const char* optimizer, const char* rule, double value) {
  if (!fits) throw UsageError(fmt::format("{}: {}, but is {:g}", optimizer, rule, value));
}

}  // namespace lockstep::optim
