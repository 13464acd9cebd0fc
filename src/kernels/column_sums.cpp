#include "kernels/column_sums.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>

#include "kernels/aligned.hpp"
#include "kernels/block_counters.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/remembered.hpp"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kColumnsOfTile = 256;
constexpr std::int64_t kColumnsOfTotals = 32;
constexpr int kThreadsOfSums = 256, kThreadsOfTotals = 1024;
/// Of a part: fewer would write more sums than they are worth.
constexpr std::int64_t kLeastRows = 16;
constexpr std::int64_t kMostParts = 1024;

const CudaKernel* sums_kernel(const at::Tensor& matrix) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType> known;
  return known.get({matrix.device().index(), matrix.scalar_type()}, [&] {
    return find_kernel("column_sums", "column_sums<" + cuda_type(matrix.scalar_type()) + ">",
                       matrix.device());
  });
}
const CudaKernel* totals_kernel(const at::Device& device) {
  thread_local Remembered<const CudaKernel*, int> known;
  return known.get({device.index()}, [&] { return find_kernel("column_totals", "column_totals", device); });
}

}  // namespace

bool takes_columns(const at::Tensor& matrix) {
  const bool is_usable = (matrix.is_cuda() || kernel_device_of_tests() != nullptr) && use_fused();
  return is_usable && c10::isReducedFloatingType(matrix.scalar_type()) && matrix.dim() == 2 &&
         matrix.is_contiguous() && matrix.size(1) % 8 == 0 && matrix.numel() > 0 && is_aligned(matrix) &&
         sums_kernel(matrix) != nullptr && totals_kernel(matrix.device()) != nullptr;
}

std::int64_t count_column_parts(const at::Tensor& matrix, std::int64_t tiles) {
  const std::int64_t blocks = 4 * multiprocessors(matrix.device());
  const std::int64_t most = std::min(kMostParts, (matrix.size(0) + kLeastRows - 1) / kLeastRows);
  return std::clamp<std::int64_t>(blocks / tiles, 1, std::max<std::int64_t>(1, most));
}

at::Tensor column_totals(const at::Tensor& partial) {
  const auto parts = partial.size(0), width = partial.size(1);
  at::Tensor totals = at::empty({width}, partial.options());
  totals_kernel(partial.device())
      ->launch({.blocks = (width + kColumnsOfTotals - 1) / kColumnsOfTotals, .threads = kThreadsOfTotals},
               partial.const_data_ptr(), totals.mutable_data_ptr(), static_cast<int>(parts),
               static_cast<int>(width));
  return totals;
}

at::Tensor column_sums(const at::Tensor& matrix) {
  if (!takes_columns(matrix)) return at::sum(matrix, {0}, /*keepdim=*/false, at::kFloat);
  const auto rows = matrix.size(0), width = matrix.size(1);
  const auto tiles = (width + kColumnsOfTile - 1) / kColumnsOfTile, parts = count_column_parts(matrix, tiles);
  const PartialSums sums(matrix.device(), parts, width, tiles);
  sums_kernel(matrix)->launch(
      {.blocks = tiles, .threads = kThreadsOfSums, .blocks_y = static_cast<int>(parts)},
      matrix.const_data_ptr(), sums.argument(), rows, static_cast<int>(width));
  return sums.totals();
}

PartialSums::PartialSums(const at::Device& device, std::int64_t parts, std::int64_t width, std::int64_t tiles)
    : partial_(at::empty({parts, width}, at::TensorOptions(at::kFloat).device(device))) {
  if (parts == 1) return;
  // Of two levels, each of which has as few parts as it can.
  group_ = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(parts))));
  counters_ = find_block_counters(device, tiles * ((parts + group_ - 1) / group_ + 1));
  if (counters_ != nullptr) totals_ = at::empty({width}, partial_.options());
}

BlockSums PartialSums::argument() const {
  return {.partial = static_cast<float*>(data_to(partial_)),
          .totals = static_cast<float*>(data_to(totals_)),
          .counters = counters_,
          .group = group_};
}

at::Tensor PartialSums::totals() const {
  if (totals_.defined()) return totals_;
  return partial_.size(0) == 1 ? partial_.view({-1}) : column_totals(partial_);
}

}  // namespace lockstep::kernels
