#include "kernels/add_norm.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "kernels/column_sums.hpp"
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

/// Values that a thread reads at once.
constexpr std::int64_t kFour = 4;

/// Threads of a block of the backward, which does several rows at a time if they are short.
constexpr int kBackwardThreads = 512;

/// How a row is divided among its threads.
struct RowShape {
  int threads, packs;

  std::int64_t rows_of_block() const { return kBackwardThreads / threads; }
};

std::optional<RowShape> shape_of_row(std::int64_t width) {
  if (width < kFour || width % kFour != 0) return std::nullopt;
  const int threads = width <= 1024 ? 128 : width <= 4096 ? 256 : 512;
  for (const int packs : {1, 2, 3, 4}) {
    if (packs * threads * kFour >= width) return RowShape{threads, packs};
  }
  return std::nullopt;
}

const CudaKernel* norm_kernel(const at::Device& device, at::ScalarType dtype, int packs) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType, int> known;
  return known.get({device.index(), dtype, packs}, [&] {
    return find_kernel("add_norm", fmt::format("add_norm<{}, {}>", cuda_type(dtype), packs), device);
  });
}

const CudaKernel* norm_backward_kernel(const at::Device& device, at::ScalarType dtype, int packs,
                                       bool sums_branch) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType, int, bool> known;
  return known.get({device.index(), dtype, packs, sums_branch}, [&] {
    return find_kernel("add_norm",
                       fmt::format("add_norm_backward<{}, {}, {}>", cuda_type(dtype), packs, sums_branch),
                       device);
  });
}

/// How it is done, beside the tensors.
struct NormTask {
  double epsilon;
  at::ScalarType dtype;
  AddNormWants wants;
  /// Whether a backward may follow, which reads the sum and the statistics.
  bool has_backward = true;
  /// Whether the backward keeps the column sums of the gradient by the branch: see keep_column_sums().
  bool sums_branch = false;
  /// At most so many blocks in backward; the others' rows are theirs as well. 0: as many as a device runs.
  std::int64_t most_blocks = 0;
};

class FusedAddNorm : public torch::autograd::Function<FusedAddNorm> {
 public:
  /// The norm in 16 bits, the sum if it is wanted, and the norm in float32 if that is.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const std::optional<at::Tensor>& given_branch, const at::Tensor& weight,
                               const at::Tensor& bias, const NormTask& task) {
    const auto& [epsilon, dtype, wants, has_backward, sums_branch, most_blocks] = task;
    const at::Tensor branch = given_branch.value_or(at::Tensor());
    const std::int64_t width = residual.size(-1), rows = residual.numel() / width;
    const RowShape shape = *shape_of_row(width);
    const auto options = residual.options().requires_grad(false);
    const at::Tensor narrow = at::empty(residual.sizes(), options.dtype(dtype));
    const at::Tensor wide = wants.wide ? at::empty(residual.sizes(), options) : at::Tensor();
    const at::Tensor read = readable(residual, at::kFloat), added = readable(branch, dtype);
    // Without a branch the sum is the residual.
    const at::Tensor sum =
        branch.defined() && (wants.sum || has_backward) ? at::empty(residual.sizes(), options) : at::Tensor();
    at::Tensor means, inverses;
    if (has_backward) means = at::empty({rows}, options), inverses = at::empty({rows}, options);
    const at::Tensor gamma = readable(weight, at::kFloat), beta = readable(bias, at::kFloat);
    norm_kernel(residual.device(), dtype, shape.packs)
        ->launch({.blocks = rows, .threads = shape.threads}, data_of(read), data_of(added), data_to(sum),
                 data_to(narrow), data_to(wide), data_of(gamma), data_of(beta), data_to(means),
                 data_to(inverses), static_cast<int>(width), static_cast<float>(epsilon));
    if (has_backward) context->save_for_backward({sum.defined() ? sum : read, gamma, means, inverses});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->saved_data["has_branch"] = branch.defined();
    context->saved_data["wants_sum"] = wants.sum;
    context->saved_data["sums_branch"] = sums_branch;
    context->saved_data["most_blocks"] = most_blocks;
    context->set_materialize_grads(false);
    variable_list results{narrow};
    if (wants.sum) results.push_back(sum);
    if (wants.wide) results.push_back(wide);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("layer normalization");
    const auto saved = context->get_saved_variables();
    const at::Tensor &values = saved[0], &gamma = saved[1], &means = saved[2], &inverses = saved[3];
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const bool has_branch = context->saved_data["has_branch"].toBool();
    const bool wants_sum = context->saved_data["wants_sum"].toBool();
    const std::int64_t width = values.size(-1), rows = means.numel();
    const RowShape shape = *shape_of_row(width);

    const at::Tensor narrow = readable(gradients[0], dtype);
    const at::Tensor by_sum = wants_sum ? readable(gradients[1], at::kFloat) : at::Tensor();
    const std::size_t at = wants_sum ? 2 : 1;
    const at::Tensor wide = gradients.size() > at ? readable(gradients[at], at::kFloat) : at::Tensor();
    const auto options = values.options();
    at::Tensor by_residual, by_branch;
    // Only tensors that were given are counted.
    const std::size_t parameters_at = has_branch ? 2 : 1;
    if (context->needs_input_grad(0)) by_residual = at::empty(values.sizes(), options);
    if (has_branch && context->needs_input_grad(1))
      by_branch = at::empty(values.sizes(), options.dtype(dtype));
    const std::int64_t limit = context->saved_data["most_blocks"].toInt(), of_block = shape.rows_of_block();
    // As many rows at a time, whatever their width.
    const std::int64_t most = limit > 0 ? limit : 4 * multiprocessors(values.device()) / of_block;
    const std::int64_t blocks = std::min((rows + of_block - 1) / of_block, most);
    const bool sums_branch = by_branch.defined() && context->saved_data["sums_branch"].toBool();
    const bool has_norm = narrow.defined() || wide.defined();
    const bool by_parameters = has_norm && (context->needs_input_grad(parameters_at) ||
                                            context->needs_input_grad(parameters_at + 1));
    const bool has_sums = by_parameters || sums_branch;
    const PartialSums partial =
        has_sums ? PartialSums(values.device(), blocks, (sums_branch ? 3 : 2) * width, 1) : PartialSums();
    norm_backward_kernel(values.device(), dtype, shape.packs, sums_branch)
        ->launch({.blocks = blocks, .threads = kBackwardThreads}, data_of(narrow), data_of(wide),
                 data_of(by_sum), data_of(values), data_of(gamma), data_of(means), data_of(inverses),
                 data_to(by_residual), data_to(by_branch), partial.argument(), rows, static_cast<int>(width),
                 shape.threads);
    at::Tensor by_weight, by_bias;
    if (has_sums) {
      const at::Tensor sums = partial.totals();
      if (by_parameters) by_weight = sums.narrow(0, 0, width), by_bias = sums.narrow(0, width, width);
      if (sums_branch) keep_column_sums(by_branch, sums.narrow(0, 2 * width, width));
    }
    return {by_residual, by_branch, by_weight, by_bias, {}};
  }
};

/// Of more rows than some blocks take at a time, whose sums are those of two groups; with a branch and
/// without.
void check_add_norm(std::int64_t width, at::ScalarType dtype, const at::Device& device) {
  constexpr std::int64_t kRows = 23;
  NormTask task{.epsilon = 1e-3, .dtype = dtype, .wants = {.sum = true, .wide = true}, .most_blocks = 5};
  const auto norm_of = [&](const at::Tensor& values, const Tensors& given) {
    return at::layer_norm(values, {width}, given[given.size() - 2], given.back(), 1e-3);
  };
  const at::Tensor states = waves({kRows, width}, at::kFloat, device, 1),
                   gamma = waves({width}, at::kFloat, device, 3),
                   beta = waves({width}, at::kFloat, device, 4);
  compare({.inputs = {states, waves({kRows, width}, dtype, device, 2), gamma, beta},
           .fused =
               [&](const Tensors& given) {
                 return FusedAddNorm::apply(given[0], std::optional(given[1]), given[2], given[3], task);
               },
           .reference =
               [&](const Tensors& given) {
                 const at::Tensor sum = given[0] + given[1], norm = norm_of(sum, given);
                 return Tensors{norm, sum, norm};
               }});
  task.wants = {};
  compare({.inputs = {states, gamma, beta},
           .fused =
               [&](const Tensors& given) {
                 return FusedAddNorm::apply(given[0], std::nullopt, given[1], given[2], task);
               },
           .reference = [&](const Tensors& given) { return Tensors{norm_of(given[0], given)}; }});
  task.sums_branch = true;
  const at::Tensor branch = waves({kRows, width}, dtype, device, 2);
  const auto results = FusedAddNorm::apply(states, std::optional(branch), gamma, beta, task);
  const auto gradient = torch::autograd::grad({results[0]}, {branch}, {branch.detach()})[0];
  const at::Tensor sums = take_column_sums(gradient);
  if (!sums.defined()) throw Error("the column sums of a gradient are not kept");
  expect_near("the sums of a gradient", sums, gradient.to(at::kDouble).sum(0), 0.02);
}

}  // namespace

bool takes_add_norm(const at::Tensor& residual, const at::Tensor& branch, const Norm& norm,
                    at::ScalarType dtype) {
  const auto fused = fused_dtype(residual);
  if (!fused || *fused != dtype || residual.scalar_type() != at::kFloat || residual.numel() == 0)
    return false;
  if (branch.defined() && (branch.scalar_type() != dtype || branch.sizes() != residual.sizes() ||
                           branch.device() != residual.device()))
    return false;
  const std::int64_t width = residual.size(-1);
  const auto fits = [&](const at::Tensor& parameter) {
    return parameter.defined() && parameter.scalar_type() == at::kFloat && parameter.dim() == 1 &&
           parameter.size(0) == width && parameter.device() == residual.device();
  };
  const auto shape = shape_of_row(width);
  if (!shape || !fits(norm.weight) || !fits(norm.bias)) return false;
  thread_local Remembered<bool, int, std::int64_t, at::ScalarType> known;
  return known.get({residual.device().index(), width, dtype}, [&] {
    return norm_kernel(residual.device(), dtype, shape->packs) != nullptr &&
           norm_backward_kernel(residual.device(), dtype, shape->packs, false) != nullptr &&
           norm_backward_kernel(residual.device(), dtype, shape->packs, true) != nullptr &&
           find_kernel("column_totals", "column_totals", residual.device()) != nullptr &&
           is_proven("layer normalization of " + std::to_string(width) + " in " + cuda_type(dtype),
                     residual.device(), [&] { check_add_norm(width, dtype, residual.device()); });
  });
}

AddNorm add_norm(const at::Tensor& residual, const at::Tensor& branch, const Norm& norm, at::ScalarType dtype,
                 const AddNormWants& wants) {
  const bool passes_residual = wants.sum && !branch.defined();
  const AddNormWants made{.sum = wants.sum && branch.defined(), .wide = wants.wide};
  const auto given = branch.defined() ? std::optional(branch) : std::nullopt;
  const bool has_backward =
      at::GradMode::is_enabled() && (residual.requires_grad() || (given && given->requires_grad()) ||
                                     norm.weight.requires_grad() || norm.bias.requires_grad());
  const auto results =
      FusedAddNorm::apply(residual, given, norm.weight, norm.bias,
                          NormTask{.epsilon = norm.epsilon,
                                   .dtype = dtype,
                                   .wants = made,
                                   .has_backward = has_backward,
                                   .sums_branch = branch.defined() && sums_its_gradient(branch)});
  AddNorm result{.sum = passes_residual ? residual : at::Tensor(), .narrow = results[0], .wide = {}};
  if (made.sum) result.sum = results[1];
  if (made.wide) result.wide = results.back();
  return result;
}

}  // namespace lockstep::kernels
