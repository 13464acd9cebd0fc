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

/// Threads of a block of the backward, which does several rows at a time if they are short.
constexpr int kRmsBackwardThreads = 512;

/// How rows are divided among threads: in the forward a row has a warp, or a block.
struct RmsShape {
  int threads, lanes, packs;

  std::int64_t rows_of_block() const { return threads / lanes; }
  std::int64_t rows_of_backward() const { return kRmsBackwardThreads / lanes; }
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

RmsWeight rms_weight(const at::Tensor& weight, double offset) {
  const bool is_wide = weight.scalar_type() == at::kFloat;
  return {.wide = is_wide ? weight.const_data_ptr<float>() : nullptr,
          .narrow = is_wide ? nullptr : data_of(weight),
          .offset = static_cast<float>(offset)};
}

/// How it is done, beside the tensors.
struct RmsTask {
  double epsilon, offset;
  at::ScalarType dtype;
  /// Whether a backward may follow, which reads the sum and the inverse root mean squares.
  bool has_backward = true;
  bool wants_sum = true;
  /// At most so many blocks in backward; the others' rows are theirs as well. 0: as many as a device runs.
  std::int64_t most_blocks = 0;
};

class FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
 public:
  /// The norm, and the sum if there is a branch and the sum is wanted.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const std::optional<at::Tensor>& given_branch, const at::Tensor& weight,
                               const RmsTask& task) {
    const at::Tensor branch = given_branch.value_or(at::Tensor());
    const std::int64_t width = residual.size(-1), rows = residual.numel() / width;
    const RmsShape shape = *rms_shape(width);
    const auto options = residual.options().requires_grad(false);
    const auto wide_type = residual.scalar_type(), dtype = task.dtype;
    const at::Tensor normed = at::empty(residual.sizes(), options.dtype(dtype));
    const at::Tensor read = readable(residual, wide_type), added = readable(branch, dtype),
                     scale = readable(weight, weight.scalar_type());
    at::Tensor sum, inverses;
    if (branch.defined() && (task.wants_sum || task.has_backward)) sum = at::empty(residual.sizes(), options);
    if (task.has_backward) inverses = at::empty({rows}, options.dtype(at::kFloat));
    const std::int64_t of_block = shape.rows_of_block();
    rms_kernel("rms_norm", residual.device(), wide_type, dtype, shape.packs)
        ->launch({.blocks = (rows + of_block - 1) / of_block, .threads = shape.threads}, data_of(read),
                 data_of(added), data_to(sum), data_to(normed), rms_weight(scale, task.offset),
                 data_to(inverses), rows, static_cast<int>(width), shape.lanes,
                 static_cast<float>(task.epsilon));
    if (task.has_backward) context->save_for_backward({sum.defined() ? sum : read, scale, inverses});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->saved_data["has_branch"] = branch.defined();
    context->saved_data["wants_sum"] = task.wants_sum;
    context->saved_data["offset"] = task.offset;
    context->saved_data["most_blocks"] = task.most_blocks;
    context->set_materialize_grads(false);
    variable_list results{normed};
    if (branch.defined() && task.wants_sum) results.push_back(sum);
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
    const bool has_sum = has_branch && context->saved_data["wants_sum"].toBool();
    const at::Tensor by_sum = has_sum ? readable(gradients[1], wide_type) : at::Tensor();
    const bool needs_branch = has_branch && context->needs_input_grad(1);
    // Where both have the dtype, one tensor is the gradient of both.
    const bool is_one_gradient = needs_branch && wide_type == dtype;
    // Only tensors that were given are counted. Of the sum alone, nothing depends on the weight.
    const bool needs_weight = normed.defined() && context->needs_input_grad(has_branch ? 2 : 1);
    const auto options = values.options();
    at::Tensor by_residual, by_branch;
    if (context->needs_input_grad(0) || is_one_gradient) by_residual = at::empty(values.sizes(), options);
    if (needs_branch && !is_one_gradient) by_branch = at::empty(values.sizes(), options.dtype(dtype));
    const std::int64_t of_block = shape.rows_of_backward();
    const std::int64_t limit = context->saved_data["most_blocks"].toInt();
    // As many threads at a time, whatever the width.
    const std::int64_t most =
        limit > 0 ? limit : 4 * multiprocessors(values.device()) * shape.threads / kRmsBackwardThreads;
    const std::int64_t blocks = std::min((rows + of_block - 1) / of_block, most);
    const PartialSums sums = needs_weight ? PartialSums(values.device(), blocks, width, 1) : PartialSums();
    rms_kernel("rms_norm_backward", values.device(), wide_type, dtype, shape.packs)
        ->launch({.blocks = blocks, .threads = kRmsBackwardThreads}, data_of(normed), data_of(by_sum),
                 data_of(values), rms_weight(weight, context->saved_data["offset"].toDouble()),
                 data_of(inverses), data_to(by_residual), data_to(by_branch), sums.argument(), rows,
                 static_cast<int>(width), shape.lanes);
    at::Tensor by_weight;
    if (needs_weight) by_weight = sums.totals().to(weight.scalar_type());
    if (is_one_gradient) by_branch = by_residual;
    return {by_residual, by_branch, by_weight, {}};
  }
};

/// Of more rows than some blocks take at a time, whose sums are those of two groups; with a branch and
/// without.
void check_rms_norm(std::int64_t width, at::ScalarType residual, at::ScalarType weight, at::ScalarType dtype,
                    const at::Device& device) {
  constexpr std::int64_t kRows = 83;
  const RmsTask task{.epsilon = 1e-3, .offset = 1, .dtype = dtype, .most_blocks = 5};
  const auto norm_of = [](const at::Tensor& values, const at::Tensor& scale) {
    return values * at::rsqrt(values.square().mean(-1, /*keepdim=*/true) + 1e-3) * (scale + 1);
  };
  const at::Tensor states = waves({kRows, width}, residual, device, 1),
                   scale = waves({width}, weight, device, 3);
  compare({.inputs = {states, waves({kRows, width}, dtype, device, 2), scale},
           .fused =
               [&](const Tensors& given) {
                 return FusedRmsNorm::apply(given[0], std::optional(given[1]), given[2], task);
               },
           .reference =
               [&](const Tensors& given) {
                 const at::Tensor sum = given[0] + given[1];
                 return Tensors{norm_of(sum, given[2]), sum};
               }});
  compare(
      {.inputs = {states, scale},
       .fused =
           [&](const Tensors& given) { return FusedRmsNorm::apply(given[0], std::nullopt, given[1], task); },
       .reference = [&](const Tensors& given) { return Tensors{norm_of(given[0], given[1])}; }});
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
                        at::ScalarType dtype, bool wants_sum) {
  const auto given = branch.defined() ? std::optional(branch) : std::nullopt;
  const bool has_backward =
      at::GradMode::is_enabled() &&
      (residual.requires_grad() || (given && given->requires_grad()) || norm.weight.requires_grad());
  const auto results = FusedRmsNorm::apply(residual, given, norm.weight,
                                           RmsTask{.epsilon = norm.epsilon,
                                                   .offset = norm.offset,
                                                   .dtype = dtype,
                                                   .has_backward = has_backward,
                                                   .wants_sum = wants_sum});
  AddRmsNorm result{.sum = {}, .normed = results[0]};
  if (wants_sum) result.sum = branch.defined() ? results[1] : residual;
  return result;
}

}  // namespace lockstep::kernels
