#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/cuda_arguments.hpp"

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

/// Sums of columns that the blocks of a kernel have. The kernel adds them itself where it can, instead of a
/// second one: see add_block_sums() of prelude.cu.
class PartialSums {
 public:
  /// None.
  PartialSums() = default;
  /// Of `width` columns in `tiles`, each of `parts` blocks.
  PartialSums(const at::Device& device, std::int64_t parts, std::int64_t width, std::int64_t tiles);

  /// Of the kernel.
  BlockSums argument() const;
  /// [width] in float32, once the kernel is launched.
  at::Tensor totals() const;

 private:
  at::Tensor partial_, totals_;
  unsigned* counters_ = nullptr;
  int group_ = 1;
};

}  // namespace lockstep::kernels
