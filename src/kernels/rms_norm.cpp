#include "kernels/rms_norm.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/column_sums.hpp"
#include "kernels/cuda_arguments.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"

namespace lockstep::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Values that a thread reads at once.
constexpr std::int64_t kRmsPack = 4;
constexpr int kWarp = 32;

/// How rows are divided among threads: a row has a warp, or a block.
struct RmsShape {
  int threads, lanes, packs;

  std::int64_t rows_of_block() const { return threads / lanes; }
};

std::optional<RmsShape> rms_shape(std::int64_t width) {
  if (width < kRmsPack || width % kRmsPack != 0) return std::nullopt;
  const bool is_warps = width <= 512;
  const int threads = width <= 1024 ? 128 : width <= 4096 ? 256 : 512, lanes = is_warps ? kWarp : threads;
  for (const int packs : {1, 2, 3, 4}) {
    if (packs * lanes * kRmsPack >= width) return RmsShape{threads, lanes, packs};
  }
  return std::nullopt;
}

const CudaKernel* rms_kernel(const char* name, const at::Device& device, at::ScalarType residual,
                             at::ScalarType dtype, int packs) {
  thread_local Remembered<const CudaKernel*, std::string_view, int, at::ScalarType, at::ScalarType, int>
      known;
  return known.get({name, device.index(), residual, dtype, packs}, [&] {
    return find_kernel("rms_norm",
                       fmt::format("{}<{}, {}, {}>", name, cuda_type(residual), cuda_type(dtype), packs),
                       device);
  });
}

RmsWeight argument_of(const at::Tensor& weight, double offset) {
  const bool is_wide = weight.scalar_type() == at::kFloat;
  return {.wide = is_wide ? weight.const_data_ptr<float>() : nullptr,
          .narrow = is_wide ? nullptr : data_of(weight),
          .offset = static_cast<float>(offset)};
}

class FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
 public:
  /// The norm, and the sum if there is a branch.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const std::optional<at::Tensor>& given_branch, const at::Tensor& weight,
                               double epsilon, double offset, at::ScalarType dtype) {
    const at::Tensor branch = given_branch.value_or(at::Tensor());
    const std::int64_t width = residual.size(-1), rows = residual.numel() / width;
    const RmsShape shape = *rms_shape(width);
    const auto options = residual.options().requires_grad(false);
    const auto wide_type = residual.scalar_type();
    const at::Tensor normed = at::empty(residual.sizes(), options.dtype(dtype));
    const at::Tensor read = readable(residual, wide_type), added = readable(branch, dtype),
                     scale = readable(weight, weight.scalar_type());
    const at::Tensor sum = branch.defined() ? at::empty(residual.sizes(), options) : at::Tensor();
    const at::Tensor inverses = at::empty({rows}, options.dtype(at::kFloat));
    const std::int64_t of_block = shape.rows_of_block();
    rms_kernel("rms_norm", residual.device(), wide_type, dtype, shape.packs)
        ->launch({.blocks = (rows + of_block - 1) / of_block, .threads = shape.threads}, data_of(read),
                 data_of(added), data_to(sum), data_to(normed), argument_of(scale, offset), data_to(inverses),
                 rows, static_cast<int>(width), shape.lanes, static_cast<float>(epsilon));
    context->save_for_backward({sum.defined() ? sum : read, scale, inverses});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->saved_data["has_branch"] = branch.defined();
    context->saved_data["offset"] = offset;
    context->set_materialize_grads(false);
    variable_list results{normed};
    if (sum.defined()) results.push_back(sum);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("root mean square normalization");
    const auto saved = context->get_saved_variables();
    const at::Tensor &values = saved[0], &weight = saved[1], &inverses = saved[2];
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const bool has_branch = context->saved_data["has_branch"].toBool();
    const std::int64_t width = values.size(-1), rows = inverses.numel();
    const RmsShape shape = *rms_shape(width);
    const auto wide_type = values.scalar_type();
    const at::Tensor normed = readable(gradients[0], dtype);
    const at::Tensor by_sum = has_branch ? readable(gradients[1], wide_type) : at::Tensor();
    const bool needs_branch = has_branch && context->needs_input_grad(1);
    // Where both have the dtype, one tensor is the gradient of both.
    const bool shares = needs_branch && wide_type == dtype;
    // Only tensors that were given are counted.
    const bool needs_weight = context->needs_input_grad(has_branch ? 2 : 1);
    const auto options = values.options();
    at::Tensor by_residual, by_branch, partial;
    if (context->needs_input_grad(0) || shares) by_residual = at::empty(values.sizes(), options);
    if (needs_branch && !shares) by_branch = at::empty(values.sizes(), options.dtype(dtype));
    const std::int64_t of_block = shape.rows_of_block();
    const std::int64_t blocks =
        std::min<std::int64_t>((rows + of_block - 1) / of_block, 4 * multiprocessors(values.device()));
    if (needs_weight) partial = at::empty({blocks * of_block, width}, options.dtype(at::kFloat));
    rms_kernel("rms_norm_backward", values.device(), wide_type, dtype, shape.packs)
        ->launch({.blocks = blocks, .threads = shape.threads}, data_of(normed), data_of(by_sum),
                 data_of(values), argument_of(weight, context->saved_data["offset"].toDouble()),
                 data_of(inverses), data_to(by_residual), data_to(by_branch), data_to(partial), rows,
                 static_cast<int>(width), shape.lanes);
    at::Tensor by_weight;
    if (partial.defined()) by_weight = column_totals(partial).to(weight.scalar_type());
    if (shares) by_branch = by_residual;
    return {by_residual, by_branch, by_weight, {}, {}, {}};
  }
};

void check_rms_norm(std::int64_t width, at::ScalarType residual, at::ScalarType weight, at::ScalarType dtype,
                    const at::Device& device) {
  compare({.inputs = {waves({3, width}, residual, device, 1), waves({3, width}, dtype, device, 2),
                      waves({width}, weight, device, 3)},
           .fused =
               [&](const Tensors& given) {
                 return FusedRmsNorm::apply(given[0], std::optional(given[1]), given[2], 1e-3, 1.0, dtype);
               },
           .reference =
               [&](const Tensors& given) {
                 const at::Tensor sum = given[0] + given[1];
                 const at::Tensor inverse = at::rsqrt(sum.square().mean(-1, /*keepdim=*/true) + 1e-3);
                 return Tensors{sum * inverse * (given[2] + 1), sum};
               }});
}

}  // namespace

bool takes_rms_norm(const at::Tensor& residual, const at::Tensor& branch, const RmsNormParameters& norm,
                    at::ScalarType dtype) {
  const auto fused = fused_dtype(residual);
  const auto is_taken = [&](at::ScalarType type) { return type == at::kFloat || type == dtype; };
  const auto wide_type = residual.scalar_type();
  if (!fused || *fused != dtype || !is_taken(wide_type) || residual.dim() < 1 || residual.numel() == 0)
    return false;
  if (branch.defined() && (branch.scalar_type() != dtype || branch.sizes() != residual.sizes() ||
                           branch.device() != residual.device()))
    return false;
  const std::int64_t width = residual.size(-1);
  const auto& weight = norm.weight;
  if (!weight.defined() || !is_taken(weight.scalar_type()) || weight.dim() != 1 || weight.size(0) != width ||
      weight.device() != residual.device())
    return false;
  const auto device = residual.device();
  const auto shape = rms_shape(width);
  if (!shape) return false;
  thread_local Remembered<bool, int, std::int64_t, at::ScalarType, at::ScalarType, at::ScalarType> known;
  return known.get({device.index(), width, wide_type, weight.scalar_type(), dtype}, [&] {
    return rms_kernel("rms_norm", device, wide_type, dtype, shape->packs) != nullptr &&
           rms_kernel("rms_norm_backward", device, wide_type, dtype, shape->packs) != nullptr &&
           find_kernel("column_totals", "column_totals", device) != nullptr &&
           is_proven(fmt::format("root mean square normalization of {} {} to {} with weights in {}", width,
                                 cuda_type(wide_type), cuda_type(dtype), cuda_type(weight.scalar_type())),
                     device, [&] { check_rms_norm(width, wide_type, weight.scalar_type(), dtype, device); });
  });
}

AddRmsNorm add_rms_norm(const at::Tensor& residual, const at::Tensor& branch, const RmsNormParameters& norm,
                        at::ScalarType dtype) {
  const auto given = branch.defined() ? std::optional(branch) : std::nullopt;
  const auto results = FusedRmsNorm::apply(residual, given, norm.weight, norm.epsilon, norm.offset, dtype);
  return {.sum = branch.defined() ? results[1] : residual, .normed = results[0]};
}

}  // namespace lockstep::kernels
