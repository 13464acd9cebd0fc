#include "lockstep/optim/fused_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "optim/recorded_step.hpp"
#include "optim/skipped_steps.hpp"
#include "optim/step_factors.hpp"

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

FusedOptimizer::FusedOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                               std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : Optimizer(std::move(groups), std::move(defaults)), skipped_(std::make_shared<SkippedSteps>()) {}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  settle();
  step_groups();
  return loss;
}

void FusedOptimizer::step_by(const StepFactors& factors) {
  if (!factors.found_inf.defined()) settle();
  Tensors parameters;
  for (auto& group : param_groups_) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) parameters.push_back(parameter);
    }
  }
  if (!skipped_->are_of(parameters)) settle();
  factors_ = &factors;
  struct End {
    const StepFactors*& factors;
    ~End() { factors = nullptr; }
  } const end{factors_};
  step_groups();
  if (factors.found_inf.defined())
    skipped_->add(parameters, factors.found_inf, recorded_for(parameters), skipped_);
}

/// The numbers of the steps are the same as before, only known.
void FusedOptimizer::settle() const {
  if (!skipped_->has_any()) return;
  const std::int64_t count = skipped_->take();
  if (count > 0) const_cast<FusedOptimizer&>(*this).take_off_steps(skipped_->parameters(), count);
}

void FusedOptimizer::take_off_steps(const Tensors& /*parameters*/, std::int64_t /*count*/) {}

void FusedOptimizer::step_groups() {
  for (auto& group : param_groups_) {
    Tensors parameters, gradients;
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
    }
    step_with(group, parameters, gradients);
    tell_changed(parameters);
    auto* replays = recorded_for(parameters);
    if (replays == nullptr) continue;
    replays->before_each([parameters] { tell_changed(parameters); });
    if (factors_ == nullptr) replays->before_each([this] { settle(); });
  }
}

void FusedOptimizer::step_with(torch::optim::OptimizerParamGroup& group, const Tensors& parameters,
                               const Tensors& gradients) {
  if (factors_ == nullptr) settle();
  const at::NoGradGuard no_grad;
  for (const auto& kind : by_kind(parameters, gradients))
    update(group.options(), kind.parameters, kind.gradients);
}

}  // namespace lockstep::optim
