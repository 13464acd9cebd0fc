#include "parallel/sync_batch_norm_kernels.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/sync_batch_norm_backward.hpp"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// One row per rank.
struct StatisticsOfRanks {
  /// [ranks, channels]
  at::Tensor means;
  /// 1 / sqrt(variance + eps), [ranks, channels]
  at::Tensor inverses;
  /// Values per channel, [ranks]
  at::Tensor counts;
};

StatisticsOfRanks gather_statistics(const at::Tensor& input, double eps, const ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const bool is_double = input.scalar_type() == at::kDouble;
  const auto options = input.options().dtype(is_double ? at::kDouble : at::kFloat);
  at::Tensor own = at::zeros({2 * channels + 1}, options);
  if (input.numel() > 0) {
    const auto [mean, inverse] = at::batch_norm_stats(input, eps);
    own = at::cat({mean, inverse, at::full({1}, input.numel() / channels, options)});
  } else {
    // Its weight is 0, and infinity times 0 would be NaN.
    own.narrow(0, channels, channels).fill_(1);
  }
  at::Tensor all = at::empty({group.size(), 2 * channels + 1}, options);
  group.all_gather_into_tensor(all.view({-1}), own);
  // Ranks without rows are moved to the end, because the first weight must not be 0. The others keep their
  // order, which determines the bits of the sums.
  const at::Tensor is_empty = all.select(1, 2 * channels).eq(0);
  all = all.index_select(0, at::argsort(is_empty, /*stable=*/true, /*dim=*/0));
  return {all.narrow(1, 0, channels).contiguous(), all.narrow(1, channels, channels).contiguous(),
          all.select(1, 2 * channels).contiguous()};
}

struct SyncBatchNormKernels : torch::autograd::Function<SyncBatchNormKernels> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const MaybeTensor& weight_or_none, const MaybeTensor& bias_or_none,
                            const BatchNormStatistics& running, double momentum, double eps,
                            const ProcessGroup& group) {
    const at::Tensor weight = weight_or_none.value_or(at::Tensor()),
                     bias = bias_or_none.value_or(at::Tensor());
    const at::Tensor input = given.contiguous(given.suggest_memory_format());
    const auto ranks = gather_statistics(input, eps, group);
    const at::Tensor& kept = running.running_mean;
    const auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(
        input, ranks.means, ranks.inverses, kept, running.running_var, momentum, eps,
        kept.defined() ? ranks.counts.to(kept.scalar_type()) : ranks.counts);
    context->save_for_backward({input, weight, mean, inverse, ranks.counts.to(at::kInt)});
    context->saved_data["has_bias"] = bias.defined();
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    if (input.numel() == 0) return at::empty_like(input);
    return at::batch_norm_elemt(input, weight, bias, mean, inverse, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const auto capsule = context->saved_data["group"].toCapsule();
    const ProcessGroup& group = static_cast<const HeldGroup*>(capsule.get())->group;
    if (at::GradMode::is_enabled()) {  // create_graph
      auto [of_input, of_weight, of_bias] = differentiable_sync_batch_norm_backward(
          input, gradients[0], weight, context->saved_data["has_bias"].toBool(), mean, inverse,
          context->saved_data["eps"].toDouble(), group);
      return {of_input, of_weight, of_bias, {}, {}, {}, {}};
    }
    const at::Tensor gradient = gradients[0].contiguous(input.suggest_memory_format());
    const std::int64_t channels = input.size(1);
    at::Tensor sums = at::zeros({2 * channels}, mean.options());
    at::Tensor of_weight, of_bias;
    if (input.numel() > 0) {
      at::Tensor sum, sum_of_products;
      std::tie(sum, sum_of_products, of_weight, of_bias) = at::batch_norm_backward_reduce(
          gradient, input, mean, inverse, weight, /*input_g=*/true, /*weight_g=*/true, /*bias_g=*/true);
      sums = at::cat({sum, sum_of_products});
    } else {
      of_weight = of_bias = at::zeros({channels}, weight.defined() ? weight.options() : mean.options());
    }
    group.all_reduce(sums);
    at::Tensor of_input = at::empty_like(input);
    if (input.numel() > 0) {
      of_input = at::batch_norm_backward_elemt(
          gradient, input, mean, inverse, weight.defined() ? weight.to(mean.scalar_type()) : weight,
          sums.narrow(0, 0, channels), sums.narrow(0, channels, channels), saved[4]);
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {
        of_input, weight.defined() ? of_weight : at::Tensor(), has_bias ? of_bias : at::Tensor(), {}, {}, {},
        {}};
  }
};

}  // namespace

at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const BatchNormStatistics& running,
                                      double momentum, double eps, const ProcessGroup& group) {
  return SyncBatchNormKernels::apply(input, maybe(weight), maybe(bias), running, momentum, eps, group);
}

}  // namespace lockstep
