#include "lockstep/optim/adam.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>

#include <map>
#include <tuple>
#include <type_traits>

#include "optim/check_options.hpp"
#include "optim/flat_adam.hpp"
#include "optim/real_views.hpp"
#include "optim/recorded_step.hpp"
#include "optim/skipped_steps.hpp"
#include "optim/step_factors.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

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
std::vector<ParameterGroup<Options>> check_groups(std::vector<ParameterGroup<Options>> groups) {
  for (const auto& group : groups) check_adam_options(group.options, kIsAdamW<Options> ? "AdamW" : "Adam");
  return groups;
}

using AdamState = torch::optim::AdamParamState;

/// Makes the state of parameters that are stepped for the first time.
template <class StateOf>
AdamLists lists_of(const Tensors& parameters, const Tensors& gradients, bool amsgrad, const StateOf& state_of,
                   const comm::GraphReplays* replays) {
  AdamLists lists{.parameters = parameters, .gradients = gradients};
  for (const auto& parameter : parameters) {
    AdamState& state = state_of(parameter);
    const bool is_first = !state.exp_avg().defined();
    const bool lacks_maximum = amsgrad && !state.max_exp_avg_sq().defined();
    if (replays != nullptr && (is_first || lacks_maximum)) refuse_first_step();
    if (is_first) begin(state, parameter);
    if (lacks_maximum) state.max_exp_avg_sq(at::zeros_like(parameter));
    lists.averages.push_back(state.exp_avg());
    lists.squares.push_back(state.exp_avg_sq());
    if (amsgrad) lists.maxima.push_back(state.max_exp_avg_sq());
  }
  return lists;
}

/// Now, or before each replay.
template <class StateOf>
void count_step(const at::Tensor& parameter, const StateOf& state_of, comm::GraphReplays* replays) {
  AdamState& state = state_of(parameter);
  if (replays == nullptr) {
    state.step(state.step() + 1);
    return;
  }
  replays->valid_while([state_of, parameter, average = state.exp_avg()] {
    return state_of(parameter).exp_avg().is_same(average);
  });
  replays->before_each([state_of, parameter] {
    AdamState& now = state_of(parameter);
    now.step(now.step() + 1);
  });
}

/// Of the parameters with the same number: their indices in the lists.
using IndicesByStep = std::map<std::int64_t, std::vector<std::size_t>>;

template <class StateOf>
IndicesByStep count_steps(const Tensors& parameters, const StateOf& state_of, comm::GraphReplays* replays) {
  IndicesByStep indices;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    count_step(parameters[i], state_of, replays);
    indices[state_of(parameters[i]).step()].push_back(i);
  }
  return indices;
}

AdamLists some_of(const AdamLists& lists, const std::vector<std::size_t>& indices) {
  AdamLists some;
  for (const std::size_t i : indices) {
    some.parameters.push_back(lists.parameters[i]);
    some.gradients.push_back(lists.gradients[i]);
    some.averages.push_back(lists.averages[i]);
    some.squares.push_back(lists.squares[i]);
    if (!lists.maxima.empty()) some.maxima.push_back(lists.maxima[i]);
  }
  return some;
}

/// What the device knows of a step; undefined tensors play no part.
struct DeviceNumbers {
  at::Tensor found_inf;
  /// How many of the steps before this one it left out.
  at::Tensor left_out;
  at::Tensor factor;

  static DeviceNumbers of(const StepFactors* factors, SkippedSteps& skipped, const Tensors& parameters) {
    if (factors == nullptr) return {};
    const at::Device device = parameters.front().device();
    const auto there = [&](const at::Tensor& number) {
      return number.defined() ? number.to(device) : number;
    };
    return {.found_inf = there(factors->found_inf),
            .left_out = factors->found_inf.defined() ? skipped.count_on(device, recorded_for(parameters))
                                                     : at::Tensor(),
            .factor = there(factors->factor)};
  }
};

/// The number of a step, as LibTorch's kernels read it: on the device. In a recorded step that of each
/// replay.
template <class StateOf>
at::Tensor number_there(std::int64_t step, const at::Tensor& parameter, const StateOf& state_of,
                        comm::GraphReplays* replays) {
  if (replays != nullptr)
    return replays->number([state_of, parameter] { return state_of(parameter).step(); });
  return at::full({}, step, parameter.options().dtype(at::kFloat));
}

template <class Options, class StateOf>
void run_flat(const kernels::CudaKernel& kernel, const Options& fields, const AdamLists& lists,
              const IndicesByStep& steps, const DeviceNumbers& device, const StateOf& state_of,
              comm::GraphReplays* replays) {
  AdamNumbers numbers{.beta1 = std::get<0>(fields.betas),
                      .beta2 = std::get<1>(fields.betas),
                      .weight_decay = fields.weight_decay,
                      .eps = fields.eps,
                      .left_out = device.left_out,
                      .found_inf = device.found_inf,
                      .factor = device.factor};
  with_rate(replays, fields.lr, [&](const auto& lr) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(lr)>, double>) {
      numbers.rate = lr;
    } else {
      numbers.rate_there = lr;
    }
  });
  for (const auto& [step, indices] : steps) {
    numbers.step = static_cast<double>(step);
    if (replays != nullptr)
      numbers.step_there = number_there(step, lists.parameters[indices.front()], state_of, replays);
    step_flat_adam(kernel, steps.size() == 1 ? lists : some_of(lists, indices), numbers);
  }
}

/// By LibTorch's kernels, which take neither a factor nor the steps that were left out.
template <class Options, class StateOf>
void run_fused(const Options& fields, const AdamLists& lists, const IndicesByStep& steps,
               const DeviceNumbers& device, const StateOf& state_of, comm::GraphReplays* replays) {
  if (device.factor.defined()) at::_foreach_mul_(lists.gradients, device.factor);
  Tensors numbers(lists.parameters.size());
  for (const auto& [step, indices] : steps) {
    at::Tensor number = number_there(step, lists.parameters[indices.front()], state_of, replays);
    if (device.left_out.defined()) number = number - device.left_out;
    for (const std::size_t i : indices) numbers[i] = number;
  }
  const auto found_inf = device.found_inf.defined() ? std::optional(device.found_inf) : std::nullopt;
  with_rate(replays, fields.lr, [&](const auto& lr) {
    const auto step = [&](const auto& kernel) {
      kernel(real_views(lists.parameters), real_views(lists.gradients), real_views(lists.averages),
             real_views(lists.squares), real_views(lists.maxima), numbers, lr, std::get<0>(fields.betas),
             std::get<1>(fields.betas), fields.weight_decay, fields.eps, fields.amsgrad, fields.maximize,
             /*grad_scale=*/std::nullopt, found_inf);
    };
    if constexpr (kIsAdamW<Options>) {
      step([](const auto&... all) { at::_fused_adamw_(all...); });
    } else {
      step([](const auto&... all) { at::_fused_adam_(all...); });
    }
  });
}

template <class Options, class StateOf>
void run(const torch::optim::OptimizerOptions& options, const Tensors& parameters, const Tensors& gradients,
         const DeviceNumbers& device, const StateOf& state_of) {
  const Options& fields = static_cast<const GroupOptions<Options>&>(options).values;
  comm::GraphReplays* replays = recorded_for(parameters);
  if (replays != nullptr) {
    replays->valid_while([&fields, recorded = fields] {
      return std::tie(fields.betas, fields.eps, fields.weight_decay, fields.amsgrad, fields.maximize) ==
             std::tie(recorded.betas, recorded.eps, recorded.weight_decay, recorded.amsgrad,
                      recorded.maximize);
    });
  }
  const AdamLists lists = lists_of(parameters, gradients, fields.amsgrad, state_of, replays);
  const auto* const kernel = find_flat_adam(lists, kIsAdamW<Options>, fields.maximize);
  const IndicesByStep steps = count_steps(parameters, state_of, replays);
  if (kernel != nullptr) return run_flat(*kernel, fields, lists, steps, device, state_of, replays);
  run_fused(fields, lists, steps, device, state_of, replays);
}

}  // namespace

template <class Options>
BasicAdam<Options>::BasicAdam(std::vector<at::Tensor> parameters, const Options& options)
    : FusedOptimizer(as_groups(check_groups<Options>({{std::move(parameters), options}})),
                     std::make_unique<GroupOptions<Options>>(options)) {}

template <class Options>
BasicAdam<Options>::BasicAdam(std::vector<ParameterGroup<Options>> groups)
    : FusedOptimizer(as_groups(check_groups(std::move(groups))),
                     std::make_unique<GroupOptions<Options>>(Options{})) {}

template <class Options>
void BasicAdam<Options>::update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                                const Tensors& gradients) {
  run<Options>(
      options, parameters, gradients, DeviceNumbers::of(this->factors(), this->skipped_steps(), parameters),
      [this](const at::Tensor& parameter) -> auto& {
        return this->template state_of<torch::optim::AdamParamState>(parameter);
      });
}

template <class Options>
void BasicAdam<Options>::take_off_steps(const Tensors& parameters, std::int64_t count) {
  for (const auto& parameter : parameters) {
    const auto found = this->state_.find(parameter.unsafeGetTensorImpl());
    if (found == this->state_.end()) continue;
    auto& state = static_cast<torch::optim::AdamParamState&>(*found->second);
    state.step(state.step() - count);
  }
}

template class BasicAdam<AdamOptions>;
template class BasicAdam<AdamWOptions>;

}  // namespace lockstep::optim
