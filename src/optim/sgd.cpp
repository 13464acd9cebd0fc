#include "lockstep/optim/sgd.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <torch/optim/sgd.h>

#include <tuple>

#include "optim/check_options.hpp"
#include "optim/real_views.hpp"
#include "optim/recorded_step.hpp"
#include "optim/step_factors.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Parameters that all are in their first step, or all in a later one.
struct SgdLists {
  Tensors parameters, gradients, momenta;
};

/// The same step in single operations, as torch.optim.SGD without fused=True.
void step_plainly(const SgdOptions& options, const at::Tensor& parameter, const at::Tensor& gradient,
                  const at::Tensor& momentum, bool is_first_step) {
  at::Tensor change = options.maximize ? gradient.neg() : gradient;
  if (options.weight_decay != 0) change = change.add(parameter, options.weight_decay);
  if (momentum.defined()) {
    if (is_first_step) {
      momentum.copy_(change);
    } else {
      // A tensor, because a number would first be rounded to the tensor's precision.
      momentum.mul_(at::native::wrapped_scalar_tensor(options.momentum)).add_(change, 1 - options.dampening);
    }
    change = options.nesterov ? change.add(momentum, options.momentum) : momentum;
  }
  parameter.add_(change, -options.lr);
}

/// PyTorch 2.11's CPU kernel computes wrong weights for float16 and bfloat16.
bool kernel_is_right_for(const at::Tensor& parameter) {
  return !(parameter.is_cpu() && c10::isReducedFloatingType(parameter.scalar_type()));
}

void run(const SgdOptions& options, const SgdLists& lists, bool is_first_step, const StepFactors* factors,
         comm::GraphReplays* replays) {
  if (lists.parameters.empty()) return;
  const at::Device device = lists.parameters.front().device();
  if (factors != nullptr && factors->factor.defined())
    at::_foreach_mul_(lists.gradients, factors->factor.to(device));
  if (!kernel_is_right_for(lists.parameters.front())) {
    for (std::size_t i = 0; i < lists.parameters.size(); ++i) {
      const at::Tensor momentum = lists.momenta.empty() ? at::Tensor() : lists.momenta[i];
      step_plainly(options, lists.parameters[i], lists.gradients[i], momentum, is_first_step);
    }
    return;
  }
  std::optional<at::Tensor> found_inf;
  if (factors != nullptr && factors->found_inf.defined()) found_inf = factors->found_inf.to(device);
  with_rate(replays, options.lr, [&](const auto& lr) {
    at::_fused_sgd_(real_views(lists.parameters), real_views(lists.gradients), real_views(lists.momenta),
                    options.weight_decay, options.momentum, lr, options.dampening, options.nesterov,
                    options.maximize, is_first_step, /*grad_scale=*/std::nullopt, found_inf);
  });
}

void check_sgd_options(const SgdOptions& options) {
  require(options.lr >= 0, "SGD", "lr must not be negative", options.lr);
  require(options.momentum >= 0, "SGD", "momentum must not be negative", options.momentum);
  require(options.weight_decay >= 0, "SGD", "weight_decay must not be negative", options.weight_decay);
  require(!options.nesterov || options.momentum > 0, "SGD", "nesterov needs momentum", options.momentum);
  require(!options.nesterov || options.dampening == 0, "SGD", "nesterov needs zero dampening",
          options.dampening);
}

std::vector<ParameterGroup<SgdOptions>> check_groups(std::vector<ParameterGroup<SgdOptions>> groups) {
  for (const auto& group : groups) check_sgd_options(group.options);
  return groups;
}

}  // namespace

SGD::SGD(std::vector<at::Tensor> parameters, const SgdOptions& options)
    : FusedOptimizer(as_groups(check_groups({{std::move(parameters), options}})),
                     std::make_unique<GroupOptions<SgdOptions>>(options)) {}

SGD::SGD(std::vector<ParameterGroup<SgdOptions>> groups)
    : FusedOptimizer(as_groups(check_groups(std::move(groups))),
                     std::make_unique<GroupOptions<SgdOptions>>(SgdOptions{})) {}

void SGD::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                 const Tensors& gradients) {
  const SgdOptions& fields = static_cast<const GroupOptions<SgdOptions>&>(options).values;
  comm::GraphReplays* replays = recorded_for(parameters);
  if (replays != nullptr) {
    replays->valid_while([&fields, recorded = fields] {
      return std::tie(fields.momentum, fields.dampening, fields.weight_decay, fields.nesterov,
                      fields.maximize) == std::tie(recorded.momentum, recorded.dampening,
                                                   recorded.weight_decay, recorded.nesterov,
                                                   recorded.maximize);
    });
  }
  if (fields.momentum == 0) return run(fields, {parameters, gradients, {}}, false, factors(), replays);
  SgdLists first, later;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto& state = state_of<torch::optim::SGDParamState>(parameters[i]);
    const bool is_first = !state.momentum_buffer().defined();
    if (is_first && replays != nullptr) refuse_first_step();
    if (is_first) state.momentum_buffer(at::empty_like(parameters[i]));
    if (replays != nullptr) {
      replays->valid_while([this, parameter = parameters[i], momentum = state.momentum_buffer()] {
        return state_of<torch::optim::SGDParamState>(parameter).momentum_buffer().is_same(momentum);
      });
    }
    SgdLists& lists = is_first ? first : later;
    lists.parameters.push_back(parameters[i]);
    lists.gradients.push_back(gradients[i]);
    lists.momenta.push_back(state.momentum_buffer());
  }
  run(fields, first, true, factors(), replays);
  run(fields, later, false, factors(), replays);
}

/// A first step that is left out would leave its momentum without values.
bool SGD::can_leave_out_step() const {
  for (const auto& group : param_groups_) {
    const bool has_momentum =
        static_cast<const GroupOptions<SgdOptions>&>(group.options()).values.momentum != 0;
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      if (!kernel_is_right_for(parameter)) return false;
      if (!has_momentum) continue;
      const auto found = state_.find(parameter.unsafeGetTensorImpl());
      if (found == state_.end()) return false;
      if (!static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer().defined())
        return false;
    }
  }
  return true;
}

}  // namespace lockstep::optim
