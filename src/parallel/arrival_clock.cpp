#include "arrival_clock.hpp"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace lockstep::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using torch::autograd::variable_list;

}  // namespace

ArrivalClock::ArrivalClock(const std::vector<NamedTensor>& parameters)
    : times_(std::make_shared<Times>(parameters.size())) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i].tensor);
    if (accumulator == nullptr) continue;  // Frozen since: it will have no gradient.
    const auto note = [times = times_, i](const variable_list& outputs, const variable_list&) {
      (*times)[i] = Clock::now();
      return outputs;
    };
    const auto key =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(note));
    hooks_.push_back({std::move(accumulator), key});
  }
}

ArrivalClock::~ArrivalClock() {
  for (const auto& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

void ArrivalClock::reset() { std::fill(times_->begin(), times_->end(), Clock::time_point{}); }

std::optional<std::vector<double>> ArrivalClock::arrivals() const {
  const auto first = *std::min_element(times_->begin(), times_->end());
  if (first == Clock::time_point{}) return std::nullopt;
  std::vector<double> seconds;
  for (const auto time : *times_) seconds.push_back(std::chrono::duration<double>(time - first).count());
  return seconds;
}

}  // namespace lockstep::parallel
