#include "kernels/split_columns.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "kernels/aligned.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/cuda_arguments.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kept_sums.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/linear.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kJoinThreads = 256;
/// Elements that a thread reads at once.
constexpr std::int64_t kJoinPack = 8;
/// As column_sums().
constexpr std::int64_t kJoinColumns = 256;

const CudaKernel* join_kernel(const at::Device& device, at::ScalarType dtype) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType> known;
  return known.get({device.index(), dtype}, [&] {
    return find_kernel("column_sums", "join_columns<" + cuda_type(dtype) + ">", device);
  });
}

/// [rows, width], which may lie apart. Undefined stays undefined.
at::Tensor joined_rows(const at::Tensor& gradient, at::ScalarType dtype) {
  if (!gradient.defined()) return gradient;
  const at::Tensor rows = gradient.to(dtype).reshape({-1, gradient.size(-1)});
  const bool fits = rows.stride(1) == 1 && rows.stride(0) % kJoinPack == 0 && is_aligned(rows);
  return fits ? rows : rows.clone(at::MemoryFormat::Contiguous);
}

class FusedSplit : public torch::autograd::Function<FusedSplit> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& packed,
                               const std::vector<std::int64_t>& widths, bool sums_gradient) {
    context->saved_data["widths"] = widths;
    context->saved_data["sizes"] = packed.sizes().vec();
    context->saved_data["sums_gradient"] = sums_gradient;
    context->saved_data["dtype"] = static_cast<std::int64_t>(packed.scalar_type());
    context->set_materialize_grads(false);
    return packed.split_with_sizes(widths, -1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("queries, keys and values of one product");
    const auto widths = context->saved_data["widths"].toIntVector(),
               sizes = context->saved_data["sizes"].toIntVector();
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    std::vector<at::Tensor> rows;
    for (const auto& gradient : gradients) rows.push_back(joined_rows(gradient, dtype));
    const auto given = std::find_if(rows.begin(), rows.end(), [](const auto& one) { return one.defined(); });
    if (given == rows.end()) return {{}, {}, {}};
    const at::Tensor joined = at::empty(sizes, given->options());
    const at::Tensor flat = joined.view({-1, sizes.back()});
    JoinedParts parts{};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      first += widths[i];
      parts.at[i] = {.from = data_of(rows[i]),
                     .row_stride = rows[i].defined() ? rows[i].stride(0) : 0,
                     .end = static_cast<int>(first)};
    }
    const auto tiles = (sizes.back() + kJoinColumns - 1) / kJoinColumns,
               blocks = count_column_parts(flat, tiles);
    const bool sums_gradient = context->saved_data["sums_gradient"].toBool();
    const PartialSums sums =
        sums_gradient ? PartialSums(joined.device(), blocks, sizes.back(), tiles) : PartialSums();
    join_kernel(joined.device(), dtype)
        ->launch({.blocks = tiles, .threads = kJoinThreads, .blocks_y = static_cast<int>(blocks)}, parts,
                 joined.mutable_data_ptr(), sums.argument(), flat.size(0), static_cast<int>(sizes.back()));
    if (sums_gradient) keep_column_sums(joined, sums.totals());
    return {joined, {}, {}};
  }
};

/// Of more rows than a part of them has, and more columns than a tile; one gradient lies apart, one is
/// missing.
void check_split(at::ScalarType dtype, const at::Device& device) {
  const std::vector<std::int64_t> widths{256, 8, 40};
  const at::Tensor packed = waves({2, 36, 304}, dtype, device, 1);
  const at::Tensor wide = waves({2, 36, 512}, dtype, device, 2).detach(),
                   thin = waves({2, 36, 40}, dtype, device, 3).detach();
  const auto parts = FusedSplit::apply(packed, widths, true);
  const at::Tensor got =
      torch::autograd::grad({parts[0], parts[2]}, {packed}, {wide.narrow(-1, 128, 256), thin})[0];
  const at::Tensor zeros = at::zeros({2, 36, 8}, thin.options());
  if (!at::equal(got, at::cat({wide.narrow(-1, 128, 256), zeros, thin}, -1)))
    throw Error("some gradients of columns differ; all have the bits of LibTorch's");
  const at::Tensor sums = take_column_sums(got);
  if (!sums.defined()) throw Error("the column sums of a gradient are not kept");
  expect_near("the sums of a gradient", sums, got.to(at::kDouble).sum(at::IntArrayRef{0, 1}), 1e-4);
}

}  // namespace

bool takes_split(const at::Tensor& packed, const std::vector<std::int64_t>& widths) {
  const auto dtype = fused_dtype(packed);
  const bool fits =
      dtype && packed.scalar_type() == *dtype && packed.dim() >= 2 && packed.numel() > 0 &&
      packed.is_contiguous() && widths.size() <= JoinedParts::kMost &&
      std::accumulate(widths.begin(), widths.end(), std::int64_t{0}) == packed.size(-1) &&
      std::all_of(widths.begin(), widths.end(), [](auto width) { return width % kJoinPack == 0; });
  if (!fits) return false;
  const auto device = packed.device();
  thread_local Remembered<bool, int, at::ScalarType> known;
  return known.get({device.index(), *dtype}, [&] {
    return join_kernel(device, *dtype) != nullptr &&
           find_kernel("column_totals", "column_totals", device) != nullptr &&
           is_proven("columns of one product in " + cuda_type(*dtype), device,
                     [&] { check_split(*dtype, device); });
  });
}

std::vector<at::Tensor> split_columns(const at::Tensor& packed, const std::vector<std::int64_t>& widths) {
  return FusedSplit::apply(packed, widths, sums_its_gradient(packed));
}

}  // namespace lockstep::kernels
