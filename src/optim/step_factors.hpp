#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::optim {

/// Numbers on the device that a step takes account of, so that the host need not know them.
struct StepFactors {
  /// One float32 element: 1 if a gradient is not finite, and then the step changes nothing; otherwise 0.
  /// Undefined: the step is made.
  at::Tensor found_inf = {};
  /// One float32 element by which all gradients are multiplied first. Whether `.grad` is as well is left
  /// open.
  at::Tensor factor = {};
};

}  // namespace lockstep::optim
