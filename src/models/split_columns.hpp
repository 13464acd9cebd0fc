#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/split_columns.hpp"

namespace lockstep::models {

/// Views of the columns: the first width's, and so on, such as queries, keys and values of one product.
inline std::vector<at::Tensor> split_columns(const at::Tensor& packed,
                                             const std::vector<std::int64_t>& widths) {
  return kernels::takes_split(packed, widths) ? kernels::split_columns(packed, widths)
                                              : packed.split_with_sizes(widths, -1);
}

}  // namespace lockstep::models
