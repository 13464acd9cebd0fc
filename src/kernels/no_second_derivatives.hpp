#pragma once

#include <ATen/core/grad_mode.h>

#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::kernels {

/// Called by a backward that has no derivative of its own. Throws UsageError if one would be recorded
/// (create_graph), which would lack the terms of the weights.
inline void refuse_second_derivatives(const std::string& what) {
  if (!at::GradMode::is_enabled()) return;
  throw UsageError("the fused kernel of " + what +
                   " has no second derivatives (create_graph): set fused_kernels to off");
}

}  // namespace lockstep::kernels
