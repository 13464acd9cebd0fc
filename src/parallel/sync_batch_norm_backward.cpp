#include "parallel/sync_batch_norm_backward.hpp"

#include <ATen/ATen.h>

#include "lockstep/comm/collectives_with_gradients.hpp"
#include "parallel/sync_batch_norm_channels.hpp"

namespace lockstep {
namespace {

using batch_norm::other_dimensions;
using batch_norm::over_channels;
using batch_norm::widened;

/// The value of `exact` with the gradient of `differentiable`.
at::Tensor with_gradient_of(const at::Tensor& exact, const at::Tensor& differentiable) {
  return exact + (differentiable - differentiable.detach());
}

}  // namespace

/// Backward as autograd sees it: the statistics depend on the input, of all ranks. Formulas and bits are
/// those of SyncBatchNormFunction::backward.
SyncBatchNormGradients differentiable_sync_batch_norm_backward(
    const at::Tensor& given, const at::Tensor& given_gradient, const at::Tensor& weight, bool has_bias,
    const at::Tensor& mean_value, const at::Tensor& inverse_value, double eps, const ProcessGroup& group) {
  const at::Tensor input = widened(given), gradient = widened(given_gradient);
  const auto dimensions = other_dimensions(input);
  const auto sum_of_all = [&](const at::Tensor& values) { return all_reduce_with_gradients(group, values); };
  const double rows =
      static_cast<double>(input.numel()) / static_cast<double>(std::max<std::int64_t>(input.size(1), 1));
  const at::Tensor own_rows = at::full({1}, rows, input.options().dtype(at::kDouble).requires_grad(false));
  group.all_reduce(own_rows);
  const double count = own_rows.item<double>();

  const at::Tensor wide = input.to(at::kDouble);
  const at::Tensor own_mean = sum_of_all(wide.sum(dimensions)) / count;
  const at::Tensor deviations = wide - over_channels(own_mean, wide);
  const at::Tensor variance = sum_of_all(deviations.square().sum(dimensions)) / count;
  const at::Tensor mean = with_gradient_of(mean_value, own_mean.to(mean_value.scalar_type()));
  const at::Tensor inverse =
      with_gradient_of(inverse_value, (variance + eps).rsqrt().to(inverse_value.scalar_type()));

  const at::Tensor normal = (input - over_channels(mean, input)) * over_channels(inverse, input);
  const at::Tensor of_bias = gradient.sum(dimensions, false, at::kDouble);
  const at::Tensor of_weight = (gradient * normal).sum(dimensions, false, at::kDouble);
  const auto means = (sum_of_all(at::cat({of_bias, of_weight})) / count).chunk(2);
  at::Tensor scale = over_channels(inverse, input);
  if (weight.defined()) scale = scale * over_channels(weight, input);
  const at::Tensor of_input =
      (gradient - over_channels(means[0], input) - normal * over_channels(means[1], input)) * scale;
  const auto own = [&](const at::Tensor& sum, bool is_wanted) {
    return is_wanted ? sum.to(weight.defined() ? weight.scalar_type() : given.scalar_type()) : at::Tensor();
  };
  return {of_input.to(given.scalar_type()), own(of_weight, weight.defined()), own(of_bias, has_bias)};
}

}  // namespace lockstep
