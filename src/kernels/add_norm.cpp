#include "kernels/add_norm.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/column_sums.hpp"
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
constexpr std::int64_t kFour = 4;

/// How a row is divided among the threads of a block.
struct RowShape {
  int threads, packs;
};

std::optional<RowShape> shape_of_row(std::int64_t width) {
  if (width < kFour || width % kFour != 0) return std::nullopt;
  const int threads = width <= 1024 ? 128 : width <= 4096 ? 256 : 512;
  for (const int packs : {1, 2, 3, 4}) {
    if (packs * threads * kFour >= width) return RowShape{threads, packs};
  }
  return std::nullopt;
}

const CudaKernel* norm_kernel(const char* name, const at::Device& device, at::ScalarType dtype, int packs) {
  thread_local Remembered<const CudaKernel*, std::string_view, int, at::ScalarType, int> known;
  return known.get({name, device.index(), dtype, packs}, [&] {
    return find_kernel("add_norm", name + ("<" + cuda_type(dtype)) + ", " + std::to_string(packs) + ">",
                       device);
  });
}

class FusedAddNorm : public torch::autograd::Function<FusedAddNorm> {
 public:
  /// The norm in 16 bits, the sum if it is wanted, and the norm in float32 if that is.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const std::optional<at::Tensor>& given_branch, const at::Tensor& weight,
                               const at::Tensor& bias, double epsilon, at::ScalarType dtype,
                               const AddNormWants& wants, bool has_backward) {
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
    const at::Tensor means = at::empty({rows}, options), inverses = at::empty({rows}, options);
    const at::Tensor gamma = readable(weight, at::kFloat), beta = readable(bias, at::kFloat);
    norm_kernel("add_norm", residual.device(), dtype, shape.packs)
        ->launch({.blocks = rows, .threads = shape.threads}, data_of(read), data_of(added), data_to(sum),
                 data_to(narrow), data_to(wide), data_of(gamma), data_of(beta), data_to(means),
                 data_to(inverses), static_cast<int>(width), static_cast<float>(epsilon));
    context->save_for_backward({sum.defined() ? sum : read, gamma, means, inverses});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->saved_data["has_branch"] = branch.defined();
    context->saved_data["wants_sum"] = wants.sum;
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
    at::Tensor by_residual, by_branch, partial;
    // Only tensors that were given are counted.
    const std::size_t parameters_at = has_branch ? 2 : 1;
    if (context->needs_input_grad(0)) by_residual = at::empty(values.sizes(), options);
    if (has_branch && context->needs_input_grad(1))
      by_branch = at::empty(values.sizes(), options.dtype(dtype));
    const std::int64_t blocks = std::min<std::int64_t>(rows, 4 * multiprocessors(values.device()));
    if (context->needs_input_grad(parameters_at) || context->needs_input_grad(parameters_at + 1))
      partial = at::empty({blocks, 2 * width}, options);
    norm_kernel("add_norm_backward", values.device(), dtype, shape.packs)
        ->launch({.blocks = blocks, .threads = shape.threads}, data_of(narrow), data_of(wide),
                 data_of(by_sum), data_of(values), data_of(gamma), data_of(means), data_of(inverses),
                 data_to(by_residual), data_to(by_branch), data_to(partial), rows, static_cast<int>(width));
    at::Tensor by_weight, by_bias;
    if (partial.defined()) {
      const at::Tensor both = column_totals(partial);
      by_weight = both.narrow(0, 0, width);
      by_bias = both.narrow(0, width, width);
    }
    return {by_residual, by_branch, by_weight, by_bias, {}, {}, {}, {}};
  }
};

void check_add_norm(std::int64_t width, at::ScalarType dtype, const at::Device& device) {
  compare({.inputs = {waves({3, width}, at::kFloat, device, 1), waves({3, width}, dtype, device, 2),
                      waves({width}, at::kFloat, device, 3), waves({width}, at::kFloat, device, 4)},
           .fused =
               [&](const Tensors& given) {
                 return FusedAddNorm::apply(given[0], std::optional(given[1]), given[2], given[3], 1e-3,
                                            dtype, AddNormWants{.sum = true, .wide = true}, true);
               },
           .reference =
               [&](const Tensors& given) {
                 const at::Tensor sum = given[0] + given[1];
                 const at::Tensor norm = at::layer_norm(sum, {width}, given[2], given[3], 1e-3);
                 return Tensors{norm, sum, norm};
               }});
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
    return norm_kernel("add_norm", residual.device(), dtype, shape->packs) != nullptr &&
           norm_kernel("add_norm_backward", residual.device(), dtype, shape->packs) != nullptr &&
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
      FusedAddNorm::apply(residual, given, norm.weight, norm.bias, norm.epsilon, dtype, made, has_backward);
  AddNorm result{.sum = passes_residual ? residual : at::Tensor(), .narrow = results[0], .wide = {}};
  if (made.sum) result.sum = results[1];
  if (made.wide) result.wide = results.back();
  return result;
}

}  // namespace lockstep::kernels
