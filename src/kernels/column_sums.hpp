#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::kernels {

/// The sums of the columns of `matrix` [rows, width] in float32, [width]. By own kernels for float16 and
/// bfloat16 on a GPU, otherwise by LibTorch's sum. Deterministic.
at::Tensor column_sums(const at::Tensor& matrix);

/// Whether own kernels take the matrix: contiguous, in 16 bits, on a GPU, its width a multiple of 8.
bool takes_columns(const at::Tensor& matrix);

/// Blocks that sum parts of the columns: so many of `tiles` each.
std::int64_t count_column_parts(const at::Tensor& matrix, std::int64_t tiles);

/// The sum of `partial` [parts, width] over the parts, by a kernel.
at::Tensor column_totals(const at::Tensor& partial);

}  // namespace lockstep::kernels
