#include "lockstep/optim/adam.hpp"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>

#include <map>

#include "check_options.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The kernels' arguments besides parameters and gradients; the same for Adam and AdamW.
struct AdamLists {
  Tensors averages, squares, maxima, steps;
};

/// The kernels only read step counts, so parameters with the same count share one tensor.
at::Tensor step_tensor(std::map<std::int64_t, at::Tensor>& known, std::int64_t step, const at::Tensor& like) {
  at::Tensor& tensor = known[step];
  if (!tensor.defined()) tensor = at::full({}, static_cast<double>(step), like.options().dtype(at::kFloat));
  return tensor;
}

void begin(torch::optim::AdamParamState& state, const at::Tensor& parameter) {
  state.exp_avg(at::zeros_like(parameter));
  state.exp_avg_sq(at::zeros_like(parameter));
}

template <class Fields>
void check(const Fields& options, const char* who) {
  const auto [beta1, beta2] = options.betas;
  require(options.lr >= 0, who, "lr must not be negative", options.lr);
  require(options.eps >= 0, who, "eps must not be negative", options.eps);
  require(beta1 >= 0 && beta1 < 1, who, "betas must be from 0 to below 1", beta1);
  require(beta2 >= 0 && beta2 < 1, who, "betas must be from 0 to below 1", beta2);
  require(options.weight_decay >= 0, who, "weight_decay must not be negative", options.weight_decay);
}

template <class Fields>
std::vector<ParameterGroup<Fields>> checked(std::vector<ParameterGroup<Fields>> groups, const char* who) {
  for (const auto& group : groups) check(group.options, who);
  return groups;
}

template <class StateOf>
AdamLists lists_of(const Tensors& parameters, bool amsgrad, const StateOf& state_of) {
  AdamLists lists;
  std::map<std::int64_t, at::Tensor> steps;
  for (const auto& parameter : parameters) {
    bool made = false;
    torch::optim::AdamParamState& state = state_of(parameter, made);
    if (made) begin(state, parameter);
    if (amsgrad && !state.max_exp_avg_sq().defined()) state.max_exp_avg_sq(at::zeros_like(parameter));
    state.step(state.step() + 1);
    lists.averages.push_back(state.exp_avg());
    lists.squares.push_back(state.exp_avg_sq());
    if (amsgrad) lists.maxima.push_back(state.max_exp_avg_sq());
    lists.steps.push_back(step_tensor(steps, state.step(), parameter));
  }
  return lists;
}

template <class Fields, class Kernel>
void run(const Kernel& kernel, const Fields& options, const Tensors& parameters, const Tensors& gradients,
         const AdamLists& lists) {
  const auto [beta1, beta2] = options.betas;
  kernel(parameters, gradients, lists.averages, lists.squares, lists.maxima, lists.steps, options.lr, beta1,
         beta2, options.weight_decay, options.eps, options.amsgrad, options.maximize);
}

template <class Fields>
const Fields& fields_of(const torch::optim::OptimizerOptions& options) {
  return static_cast<const GroupOptions<Fields>&>(options).values;
}

}  // namespace

Adam::Adam(std::vector<at::Tensor> parameters, const AdamOptions& options)
    : FusedOptimizer(as_groups(checked<AdamOptions>({{std::move(parameters), options}}, "Adam")),
                     std::make_unique<GroupOptions<AdamOptions>>(options)) {}

Adam::Adam(std::vector<ParameterGroup<AdamOptions>> groups)
    : FusedOptimizer(as_groups(checked(std::move(groups), "Adam")),
                     std::make_unique<GroupOptions<AdamOptions>>(AdamOptions{})) {}

void Adam::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                  const Tensors& gradients) {
  const auto& fields = fields_of<AdamOptions>(options);
  const auto lists = lists_of(
      parameters, fields.amsgrad, [&](const at::Tensor& parameter, bool& made) -> auto& {
        return state_of<torch::optim::AdamParamState>(parameter, made);
      });
  run([](const auto&... all) { at::_fused_adam_(all...); }, fields, parameters, gradients, lists);
}

AdamW::AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options)
    : FusedOptimizer(as_groups(checked<AdamWOptions>({{std::move(parameters), options}}, "AdamW")),
                     std::make_unique<GroupOptions<AdamWOptions>>(options)) {}

AdamW::AdamW(std::vector<ParameterGroup<AdamWOptions>> groups)
    : FusedOptimizer(as_groups(checked(std::move(groups), "AdamW")),
                     std::make_unique<GroupOptions<AdamWOptions>>(AdamWOptions{})) {}

void AdamW::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                   const Tensors& gradients) {
  const auto& fields = fields_of<AdamWOptions>(options);
  const auto lists = lists_of(
      parameters, fields.amsgrad, [&](const at::Tensor& parameter, bool& made) -> auto& {
        return state_of<torch::optim::AdamParamState>(parameter, made);
      });
  run([](const auto&... all) { at::_fused_adamw_(all...); }, fields, parameters, gradients, lists);
}

}  // namespace lockstep::optim
