#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/models/linear.hpp"

namespace lockstep::models {

/// The outputs of layers of one input, side by side, by one product of fused kernels. Undefined where each
/// layer has to be called by itself: without fused kernels, with adapters or quantized weights, and for
/// unlike layers.
at::Tensor packed_product(const at::Tensor& input, const std::vector<Linear>& layers);

}  // namespace lockstep::models
