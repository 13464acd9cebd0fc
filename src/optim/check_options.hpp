#pragma once

#include <sstream>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {

/// Throws UsageError unless `fits`; `rule` describes the requirement.
inline void require(bool fits, const char* optimizer, const char* rule, double value) {
  if (fits) return;
  std::ostringstream text;
  text << optimizer << ": " << rule << ", but is " << value;
  throw UsageError(text.str());
}

}  // namespace lockstep::optim
