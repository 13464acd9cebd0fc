#include "lockstep/optim/adam.hpp"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>

#include <map>
#include <type_traits>

#include "optim/check_options.hpp"
#include "optim/real_views.hpp"
#include "optim/recorded_step.hpp"

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

template <class Options>
constexpr bool kIsAdamW = std::is_same_v<Options, AdamWOptions>;

template <class Options>
void check_adam_options(const Options& options, const char* who) {
  const auto [beta1, beta2] = options.betas;
  require(options.lr >= 0, who, "lr must not be negative", options.lr);
  require(options.eps >= 0, who, "eps must not be negative", options.eps);
  require(beta1 >= 0 && beta1 < 1, who, "betas must be from 0 to below 1", beta1);
  require(beta2 >= 0 && beta2 < 1, who, "betas must be from 0 to below 1", beta2);
  require(options.weight_decay >= 0, who, "weight_decay must not be negative", options.weight_decay);
}

template <class Options>
std::vector<ParameterGroup<Options>> checked(std::vector<ParameterGroup<Options>> groups) {
  for (const auto& group : groups) check_adam_options(group.options, kIsAdamW<Options> ? "AdamW" : "Adam");
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

template <class Options, class StateOf>
void run(const torch::optim::OptimizerOptions& options, const Tensors& parameters, const Tensors& gradients,
         const StateOf& state_of) {
  const Options& fields = static_cast<const GroupOptions<Options>&>(options).values;
  comm::GraphReplays* replays = recorded_for(parameters);
  const AdamLists lists = lists_of(parameters, fields.amsgrad, state_of, replays);
  with_rate(replays, fields.lr, [&](const auto& lr) {
    const auto step = [&](const auto& kernel) {
      kernel(real_views(parameters), real_views(gradients), real_views(lists.averages),
             real_views(lists.squares), real_views(lists.maxima), lists.steps, lr, std::get<0>(fields.betas),
             std::get<1>(fields.betas), fields.weight_decay, fields.eps, fields.amsgrad, fields.maximize);
    };
    if constexpr (kIsAdamW<Options>) {
      step([](const auto&... all) { at::_fused_adamw_(all...); });
    } else {
      step([](const auto&... all) { at::_fused_adam_(all...); });
    }
  });
}

}  // namespace

template <class Options>
BasicAdam<Options>::BasicAdam(std::vector<at::Tensor> parameters, const Options& options)
    : FusedOptimizer(as_groups(checked<Options>({{std::move(parameters), options}})),
                     std::make_unique<GroupOptions<Options>>(options)) {}

template <class Options>
BasicAdam<Options>::BasicAdam(std::vector<ParameterGroup<Options>> groups)
    : FusedOptimizer(as_groups(checked(std::move(groups))),
                     std::make_unique<GroupOptions<Options>>(Options{})) {}

template <class Options>
void BasicAdam<Options>::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                                const Tensors& gradients) {
  run<Options>(
      options, parameters, gradients, [this](const at::Tensor& parameter) -> auto& {
        return this->template state_of<torch::optim::AdamParamState>(parameter);
      });
}

template class BasicAdam<AdamOptions>;
template class BasicAdam<AdamWOptions>;

}  // namespace lockstep::optim
