#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace lockstep::batch_norm {

/// All dimensions except that of the channels.
inline std::vector<std::int64_t> other_dimensions(const at::Tensor& tensor) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < tensor.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

/// In float at least: float16 and bfloat16 would lose the variance of inputs with a large mean.
inline at::Tensor widened(const at::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

/// One value per channel, in a shape that broadcasts over `like`.
inline at::Tensor over_channels(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = -1;
  return values.to(like.scalar_type()).view(sizes);
}

}  // namespace lockstep::batch_norm
