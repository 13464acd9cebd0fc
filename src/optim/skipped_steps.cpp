#include "optim/skipped_steps.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep::optim {

bool SkippedSteps::are_of(const Tensors& parameters) const {
  return std::equal(parameters.begin(), parameters.end(), parameters_.begin(), parameters_.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return one.is_same(other); });
}

at::Tensor SkippedSteps::count_on(const at::Device& device, const comm::GraphReplays* replays) {
  at::Tensor& count = counts_[device.str()];
  if (count.defined()) return count;
  if (replays != nullptr) {
    throw UsageError(
        "the first step with a loss scale cannot be recorded in a CUDA graph: let warmup_steps of "
        "GraphedStep "
        "cover it");
  }
  return count = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
}

void SkippedSteps::add(const Tensors& parameters, const at::Tensor& found_inf, comm::GraphReplays* replays,
                       const std::shared_ptr<SkippedSteps>& self) {
  const at::NoGradGuard no_grad;
  parameters_ = parameters;
  for (auto& [device, count] : counts_)
    count.add_(found_inf.reshape({}).to(count.device(), /*non_blocking=*/true));
  if (replays == nullptr) {
    ++steps_;
  } else {
    replays->before_each([self] { ++self->steps_; });
  }
}

std::int64_t SkippedSteps::take() {
  if (!has_any()) return 0;
  const at::NoGradGuard no_grad;
  const std::int64_t count = counts_.empty() ? 0 : std::llround(counts_.begin()->second.item<double>());
  for (auto& [device, tensor] : counts_) tensor.zero_();
  steps_ = 0;
  return count;
}

}  // namespace lockstep::optim
