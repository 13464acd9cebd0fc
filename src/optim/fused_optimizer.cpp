#include "lockstep/optim/fused_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "optim/recorded_step.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

[[noreturn]] void refuse(const at::Tensor& parameter, const char* why) {
  throw UsageError(
      fmt::format("fused optimizer: the parameter of shape [{}] {}: use an optimizer of torch::optim for it",
                  fmt::join(parameter.sizes(), ", "), why));
}

/// The gradient with the strides and dtype of the parameter, as the kernels require.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.is_sparse()) refuse(parameter, "has a sparse gradient");
  if (!parameter.is_non_overlapping_and_dense()) refuse(parameter, "is not dense in memory");
  const bool same =
      gradient.strides() == parameter.strides() && gradient.scalar_type() == parameter.scalar_type();
  return same ? gradient : at::empty_like(parameter).copy_(gradient);
}

bool belong_together(const at::Tensor& one, const at::Tensor& other) {
  return one.device() == other.device() && one.scalar_type() == other.scalar_type();
}

struct Kind {
  Tensors parameters;
  Tensors gradients;
};

/// The GPU kernels take one device and dtype per call.
std::vector<Kind> by_kind(const Tensors& parameters, const Tensors& gradients) {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto fits = [&](const Kind& kind) {
      return belong_together(kind.parameters.front(), parameters[i]);
    };
    auto kind = std::find_if(kinds.begin(), kinds.end(), fits);
    if (kind == kinds.end()) kind = kinds.emplace(kinds.end());
    kind->parameters.push_back(parameters[i]);
    kind->gradients.push_back(laid_out_as(parameters[i], gradients[i]));
  }
  return kinds;
}

/// PyTorch's fused kernels do not increment versions, on which autograd and DataParallel rely.
void tell_changed(const Tensors& parameters) {
  for (const auto& parameter : parameters) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (auto& group : param_groups_) {
    Tensors parameters, gradients;
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
    }
    step_with(group, parameters, gradients);
    tell_changed(parameters);
    if (auto* replays = recorded_for(parameters))
      replays->before_each([parameters] { tell_changed(parameters); });
  }
  return loss;
}

void FusedOptimizer::step_with(torch::optim::OptimizerParamGroup& group, const Tensors& parameters,
                               const Tensors& gradients) {
  const at::NoGradGuard no_grad;
  for (const auto& kind : by_kind(parameters, gradients))
    update(group.options(), kind.parameters, kind.gradients);
}

}  // namespace lockstep::optim
