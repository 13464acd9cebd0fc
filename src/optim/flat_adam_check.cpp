#include "optim/flat_adam_check.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "lockstep/core/error.hpp"
#include "optim/flat_adam.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.1, kEps = 1e-8;
constexpr int kSteps = 3;

/// More than a block, a few elements, and some at an odd address. Not random: the generators are the
/// training's.
Tensors values_like(const at::Device& device, double scale) {
  Tensors values;
  for (const std::int64_t size : {9001, 5, 131}) {
    const at::Tensor numbers = at::arange(size + 1, at::TensorOptions(device).dtype(at::kFloat));
    values.push_back((numbers.mul(0.7).sin_().mul_(scale)).narrow(0, size == 131 ? 1 : 0, size));
  }
  return values;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

AdamLists lists_on(const at::Device& device, bool has_maxima) {
  AdamLists lists{.parameters = values_like(device, 2)};
  for (const auto& parameter : lists.parameters) {
    lists.averages.push_back(at::zeros_like(parameter));
    lists.squares.push_back(at::zeros_like(parameter));
    if (has_maxima) lists.maxima.push_back(at::zeros_like(parameter));
  }
  return lists;
}

void step_by_libtorch(const AdamLists& lists, const AdamKind& kind, int step) {
  const Tensors numbers(lists.parameters.size(),
                        at::full({}, step, lists.parameters.front().options().dtype(at::kFloat)));
  const auto run = [&](const auto& kernel) {
    kernel(lists.parameters, lists.gradients, lists.averages, lists.squares, lists.maxima, numbers, kRate,
           kBeta1, kBeta2, kDecay, kEps, kind.has_maxima, kind.maximizes, std::nullopt, std::nullopt);
  };
  if (kind.is_decoupled) {
    run([](const auto&... all) { at::_fused_adamw_(all...); });
  } else {
    run([](const auto&... all) { at::_fused_adam_(all...); });
  }
}

bool are_alike(const Tensors& ours, const Tensors& theirs) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool alike =
        ours[i].is_cuda() ? at::equal(ours[i], theirs[i]) : at::allclose(ours[i], theirs[i], 1e-4, 1e-6);
    if (!alike) return false;
  }
  return true;
}

bool are_alike(const AdamLists& ours, const AdamLists& theirs) {
  return are_alike(ours.parameters, theirs.parameters) && are_alike(ours.averages, theirs.averages) &&
         are_alike(ours.squares, theirs.squares) && are_alike(ours.maxima, theirs.maxima);
}

}  // namespace

bool agrees_with_libtorch(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device) {
  const at::NoGradGuard no_grad;
  AdamLists ours = lists_on(device, kind.has_maxima), theirs = lists_on(device, kind.has_maxima);
  const auto options = ours.parameters.front().options();
  AdamNumbers numbers{.rate = kRate,
                      .beta1 = kBeta1,
                      .beta2 = kBeta2,
                      .weight_decay = kDecay,
                      .eps = kEps,
                      .left_out = at::full({}, 2, options),
                      .found_inf = at::zeros({1}, options),
                      .factor = at::full({}, 0.3, options)};
  for (int step = 1; step <= kSteps; ++step) {
    ours.gradients = values_like(device, step == 2 ? 1e-4 : 3.0 / step);
    theirs.gradients = copies_of(ours.gradients);
    at::_foreach_mul_(theirs.gradients, numbers.factor);
    numbers.step = step + 2;
    step_flat_adam(kernel, ours, numbers);
    step_by_libtorch(theirs, kind, step);
  }
  // A step that is left out.
  numbers.found_inf = at::ones({1}, options);
  step_flat_adam(kernel, ours, numbers);
  return are_alike(ours, theirs);
}

void check_flat_adam(const kernels::CudaKernel& kernel, const AdamKind& kind, const at::Device& device) {
  if (!agrees_with_libtorch(kernel, kind, device))
    throw Error("some values of a step differ; a step has the bits of LibTorch's");
}

}  // namespace lockstep::optim
