#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::kernels {

/// Whether the kernel of the backward takes them: `packed` [..., sum of widths] of a GPU in float16 or
/// bfloat16, dense, and at most three widths, multiples of 8. False also where the kernel cannot be compiled.
bool takes_split(const at::Tensor& packed, const std::vector<std::int64_t>& widths);

/// Views of the columns, with a graph: the first width's, and so on, such as queries, keys and values of one
/// product. The backward writes their gradients side by side in one pass, which also sums the columns if
/// `packed` is of linear() and its bias wants that. No second derivatives.
std::vector<at::Tensor> split_columns(const at::Tensor& packed, const std::vector<std::int64_t>& widths);

}  // namespace lockstep::kernels
