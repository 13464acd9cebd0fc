#include "parallel/sync_batch_norm.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.hpp"
#include "parallel/sync_batch_norm_backward.hpp"
#include "parallel/sync_batch_norm_channels.hpp"
#include "parallel/sync_batch_norm_kernels.hpp"

namespace lockstep {
namespace {

using batch_norm::other_dimensions;
using batch_norm::over_channels;
using batch_norm::widened;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GlobalStatistics {
  at::Tensor mean, variance;
  double count = 0;
};

/// One exchange of each rank's count, mean and variance, combined by Chan's formula: subtracting the squares
/// of large means would lose the variance.
GlobalStatistics gather_statistics(const at::Tensor& input, const ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const auto dimensions = other_dimensions(input);
  const double rows =
      static_cast<double>(input.numel()) / static_cast<double>(std::max<std::int64_t>(channels, 1));
  const auto options = input.options().dtype(at::kDouble).requires_grad(false);
  at::Tensor own = at::zeros({2 * channels + 1}, options);
  if (rows > 0) {
    const at::Tensor wide = input.to(at::kDouble);
    own.narrow(0, 0, channels).copy_(wide.mean(dimensions));
    own.narrow(0, channels, channels).copy_(wide.var(dimensions, /*unbiased=*/false));
    own[-1] = rows;
  }
  at::Tensor all = at::empty({group.size(), 2 * channels + 1}, options);
  group.all_gather_into_tensor(all.view({-1}), own);
  const at::Tensor counts = all.select(1, 2 * channels).unsqueeze(1);
  const at::Tensor means = all.narrow(1, 0, channels);
  const double total = counts.sum().item<double>();
  const at::Tensor mean = (means * counts).sum(0) / total;
  const at::Tensor squares = (all.narrow(1, channels, channels) + (means - mean).square()) * counts;
  return {mean, squares.sum(0) / total, total};
}

void move_running(const BatchNormStatistics& running, const GlobalStatistics& batch, double momentum) {
  const auto move = [&](const at::Tensor& kept, const at::Tensor& fresh) {
    if (kept.defined()) kept.mul_(1 - momentum).add_(fresh.to(kept.options()), momentum);
  };
  move(running.running_mean, batch.mean);
  move(running.running_var, batch.variance * (batch.count / (batch.count - 1)));
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const MaybeTensor& weight_or_none, const MaybeTensor& bias_or_none,
                            const at::Tensor& mean, const at::Tensor& inverse, double count, double eps,
                            const ProcessGroup& group) {
    const at::Tensor weight = weight_or_none.value_or(at::Tensor()),
                     bias = bias_or_none.value_or(at::Tensor());
    context->save_for_backward({input, weight, mean, inverse});
    context->saved_data["count"] = count;
    context->saved_data["eps"] = eps;
    context->saved_data["has_bias"] = bias.defined();
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    const at::Tensor wide = widened(input);
    at::Tensor output = (wide - over_channels(mean, wide)) * over_channels(inverse, wide);
    if (weight.defined()) output = output * over_channels(weight, wide);
    if (bias.defined()) output = output + over_channels(bias, wide);
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const auto capsule = context->saved_data["group"].toCapsule();
    const ProcessGroup& group = static_cast<const HeldGroup*>(capsule.get())->group;
    if (at::GradMode::is_enabled()) {  // create_graph
      auto [of_input, of_weight, of_bias] = differentiable_sync_batch_norm_backward(
          saved[0], gradients[0], weight, context->saved_data["has_bias"].toBool(), mean, inverse,
          context->saved_data["eps"].toDouble(), group);
      return {of_input, of_weight, of_bias, {}, {}, {}, {}, {}};
    }
    const at::Tensor input = widened(saved[0]), gradient = widened(gradients[0]);
    const at::Tensor normal = (input - over_channels(mean, input)) * over_channels(inverse, input);
    const auto dimensions = other_dimensions(input);
    const at::Tensor of_bias = gradient.sum(dimensions, false, at::kDouble);
    const at::Tensor of_weight = (gradient * normal).sum(dimensions, false, at::kDouble);
    const at::Tensor sums = at::cat({of_bias, of_weight});
    group.all_reduce(sums);
    const auto means = (sums / context->saved_data["count"].toDouble()).chunk(2);
    at::Tensor scale = over_channels(inverse, input);
    if (weight.defined()) scale = scale * over_channels(weight, input);
    const at::Tensor of_input =
        (gradient - over_channels(means[0], input) - normal * over_channels(means[1], input)) * scale;
    const auto own = [&](const at::Tensor& sum, bool is_wanted) {
      return is_wanted ? sum.to(weight.defined() ? weight.scalar_type() : saved[0].scalar_type())
                       : at::Tensor();
    };
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {of_input.to(saved[0].scalar_type()),
            own(of_weight, weight.defined()),
            own(of_bias, has_bias),
            {},
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const BatchNormStatistics& running, double momentum, double eps,
                           const ProcessGroup& group) {
  if (input.dim() < 2 || !input.is_floating_point())
    throw UsageError("SyncBatchNorm expects a floating-point input of two dimensions or more.");
  if (input.is_cuda()) return sync_batch_norm_by_kernels(input, weight, bias, running, momentum, eps, group);
  GlobalStatistics batch;
  {
    const at::NoGradGuard no_grad;
    batch = gather_statistics(input.detach(), group);
    if (batch.count < 2)
      throw UsageError("SyncBatchNorm expects more than one value a channel over all ranks when training.");
    move_running(running, batch, momentum);
  }
  const at::Tensor inverse = (batch.variance + eps).rsqrt();
  return SyncBatchNormFunction::apply(input, maybe(weight), maybe(bias), batch.mean, inverse, batch.count,
                                      eps, group);
}

}  // namespace lockstep
