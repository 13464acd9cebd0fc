#include "lockstep/optim/adam.hpp"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>

#include <map>

#include "check_options.hpp"
#include "recorded_step.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The kernels' arguments besides parameters and gradients; the same for Adam and AdamW.
struct AdamLists {
  Tensors averages, squares, maxima, steps;
};

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

/// The number of the step of some parameters, which the kernels read on their device: parameters with the
/// same number share a tensor.
class StepNumbers {
 public:
  explicit StepNumbers(comm::GraphReplays* replays) : replays_(replays) {}

  template <class StateOf>
  at::Tensor next(torch::optim::AdamParamState& state, const at::Tensor& parameter, const StateOf& state_of) {
    if (replays_ == nullptr) {
      state.step(state.step() + 1);
    } else {
      replays_->before_each([state_of, parameter, average = state.exp_avg()] {
        torch::optim::AdamParamState& now = state_of(parameter);
        check_recorded(now.exp_avg(), average);
        now.step(now.step() + 1);
      });
    }
    at::Tensor& number = numbers_[state.step()];
    if (number.defined()) return number;
    if (replays_ != nullptr)
      return number = replays_->number([state_of, parameter] { return state_of(parameter).step(); });
    return number = at::full({}, state.step(), parameter.options().dtype(at::kFloat));
  }

 private:
  comm::GraphReplays* replays_;
  std::map<std::int64_t, at::Tensor> numbers_;
};

template <class StateOf>
AdamLists lists_of(const Tensors& parameters, bool amsgrad, const StateOf& state_of,
                   comm::GraphReplays* replays) {
  AdamLists lists;
  StepNumbers numbers(replays);
  for (const auto& parameter : parameters) {
    torch::optim::AdamParamState& state = state_of(parameter);
    const bool is_first = !state.exp_avg().defined();
    const bool lacks_maximum = amsgrad && !state.max_exp_avg_sq().defined();
    if (replays != nullptr && (is_first || lacks_maximum)) refuse_first_step();
    if (is_first) begin(state, parameter);
    if (lacks_maximum) state.max_exp_avg_sq(at::zeros_like(parameter));
    lists.averages.push_back(state.exp_avg());
    lists.squares.push_back(state.exp_avg_sq());
    if (amsgrad) lists.maxima.push_back(state.max_exp_avg_sq());
    lists.steps.push_back(numbers.next(state, parameter, state_of));
  }
  return lists;
}

template <class Fields, class StateOf, class Kernel>
void run(const torch::optim::OptimizerOptions& options, const Tensors& parameters, const Tensors& gradients,
         const StateOf& state_of, const Kernel& kernel) {
  const Fields& fields = static_cast<const GroupOptions<Fields>&>(options).values;
  comm::GraphReplays* replays = recorded_for(parameters);
  const AdamLists lists = lists_of(parameters, fields.amsgrad, state_of, replays);
  with_rate(replays, fields.lr, [&](const auto& lr) {
    const auto [beta1, beta2] = fields.betas;
    kernel(parameters, gradients, lists.averages, lists.squares, lists.maxima, lists.steps, lr, beta1, beta2,
           fields.weight_decay, fields.eps, fields.amsgrad, fields.maximize);
  });
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
  const auto state_of = [this](const at::Tensor& parameter) -> auto& {
    return this->state_of<torch::optim::AdamParamState>(parameter);
  };
  run<AdamOptions>(options, parameters, gradients, state_of,
                   [](const auto&... all) { at::_fused_adam_(all...); });
}

AdamW::AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options)
    : FusedOptimizer(as_groups(checked<AdamWOptions>({{std::move(parameters), options}}, "AdamW")),
                     std::make_unique<GroupOptions<AdamWOptions>>(options)) {}

AdamW::AdamW(std::vector<ParameterGroup<AdamWOptions>> groups)
    : FusedOptimizer(as_groups(checked(std::move(groups), "AdamW")),
                     std::make_unique<GroupOptions<AdamWOptions>>(AdamWOptions{})) {}

void AdamW::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                   const Tensors& gradients) {
  const auto state_of = [this](const at::Tensor& parameter) -> auto& {
    return this->state_of<torch::optim::AdamParamState>(parameter);
  };
  run<AdamWOptions>(options, parameters, gradients, state_of,
                    [](const auto&... all) { at::_fused_adamw_(all...); });
}

}  // namespace lockstep::optim
