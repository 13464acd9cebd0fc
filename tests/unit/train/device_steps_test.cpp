// Steps whose numbers only the device knows, by kernels of our own on a GPU, and by LibTorch's on a CPU.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <optional>

#include "kernels/weight_copies.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/kernels/fused_kernels.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/graphed_step.hpp"
#include "on_device.hpp"
#include "optim/step_factors.hpp"
#include "support/graph_tape.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
using testing::OnDevice;
using Tensors = std::vector<at::Tensor>;
constexpr double kOverflow = std::numeric_limits<double>::infinity();

Tensors weights_of_all_kinds(const at::Device& device) {
  torch::manual_seed(4);
  Tensors made;
  for (const std::int64_t size : {1, 7, 256, 8192, 100003, 0})
    made.push_back(torch::randn({size}).to(device));
  made.push_back(torch::randn({13}).to(device).narrow(0, 1, 12));
  made.push_back(torch::randn({600, 100}).to(device).t());
  for (auto& weight : made) weight.requires_grad_();
  return made;
}

/// The weights after some steps, with a factor or with gradients that are multiplied first.
template <class Optimizer, class Options>
Tensors stepped(const at::Device& device, const Options& options, FusedKernels kernels, bool folds) {
  set_fused_kernels(kernels);
  const Tensors weights = weights_of_all_kinds(device);
  Optimizer optimizer(weights, options);
  for (int step = 0; step < 6; ++step) {
    const at::Tensor factor = at::full({}, std::pow(10.0, step % 3 - 2) / 3, weights[0].options());
    for (const auto& weight : weights)
      weight.mutable_grad() = (weight.detach() * 3 + step).sin() * (folds ? at::ones_like(factor) : factor);
    folds ? optimizer.step_by({.factor = factor}) : void(optimizer.step());
  }
  set_fused_kernels(FusedKernels::automatic);
  Tensors results;
  for (const auto& weight : weights) results.push_back(weight.detach());
  return results;
}

void expect_same_bits(const Tensors& one, const Tensors& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(at::equal(one[i], other[i]))
        << i << ": apart by " << (one[i] - other[i]).abs().max().item<double>();
}

template <class Optimizer, class Options>
void expect_bits_of_libtorch(const at::Device& device, const Options& options) {
  const Tensors theirs = stepped<Optimizer>(device, options, FusedKernels::off, false);
  expect_same_bits(stepped<Optimizer>(device, options, FusedKernels::automatic, false), theirs);
  expect_same_bits(stepped<Optimizer>(device, options, FusedKernels::automatic, true), theirs);
}

TEST_P(OnDevice, StepsOfAdamHaveTheBitsOfLibTorchs) {
  optim::AdamWOptions decoupled{.lr = 0.01, .weight_decay = 0.1};
  expect_bits_of_libtorch<optim::AdamW>(device(), decoupled);
  decoupled.amsgrad = decoupled.maximize = true;
  expect_bits_of_libtorch<optim::AdamW>(device(), decoupled);
  optim::AdamOptions coupled{.lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.1};
  expect_bits_of_libtorch<optim::Adam>(device(), coupled);
  coupled.weight_decay = 0;
  coupled.maximize = true;
  expect_bits_of_libtorch<optim::Adam>(device(), coupled);
}

/// A net in float16 with a scaler, two of whose steps are left out: losses, and at the end the weights and
/// the numbers of the steps.
template <class Optimizer>
Tensors scaled_steps(const at::Device& device, Optimizer&& make, bool graphed, bool forbids_waits) {
  const auto stream = graph_stream(device);
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(6, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  net->to(device);
  auto optimizer = make(net->parameters());
  optim::GradScaler scaler({.init_scale = 1024, .growth_interval = 4});
  const auto step = [&](const Tensors& inputs) {
    const at::Tensor loss = in_precision(device, device.is_cuda() ? MixedPrecision::fp16 : MixedPrecision::no,
                                         [&] { return net->forward(inputs[0]); })
                                .square()
                                .mean() *
                            inputs[1];
    optimizer.zero_grad(/*set_to_none=*/!graphed);
    scaler.scale(loss).backward();
    scaler.unscale(optimizer);
    scaler.step(optimizer);
    scaler.update();
    return Tensors{loss.detach()};
  };
  GraphedStep recorded(step, {.warmup_steps = 3});
  Tensors results;
  for (int i = 0; i < 12; ++i) {
    const Tensors inputs{at::arange(48).add(i).mul(0.37).sin().view({8, 6}).to(device),
                         at::full({}, i == 1 || i == 7 ? kOverflow : 1 + 0.1 * i, at::kFloat).to(device)};
    const bool may_not_wait = forbids_waits && i > 4 && device.is_cuda();
    if (may_not_wait) set_sync_debug_mode(SyncDebugMode::error);
    results.push_back(graphed ? recorded(inputs)[0].clone() : step(inputs)[0]);
    if (may_not_wait) set_sync_debug_mode(SyncDebugMode::off);
  }
  for (auto& result : results) result = result.nan_to_num(-1, -1, -1);
  for (const auto& parameter : net->parameters()) {
    results.push_back(parameter.detach().clone());
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(found->second.get())) {
      EXPECT_EQ(adam->step(), 10);
    }
  }
  results.push_back(at::scalar_tensor(scaler.get_scale()));
  return results;
}

optim::AdamW adamw_of(const Tensors& parameters) { return optim::AdamW(parameters, {.lr = 0.02}); }
optim::SGD sgd_of(const Tensors& parameters) { return optim::SGD(parameters, {.lr = 0.02, .momentum = 0.9}); }

/// With an optimizer of LibTorch's, whose steps the host decides on.
TEST_P(OnDevice, StepsWithAScalerDoNotWait) {
  const auto theirs = [](const Tensors& parameters) {
    return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.02).momentum(0.9));
  };
  const Tensors waited = scaled_steps(device(), theirs, false, false);
  expect_close(scaled_steps(device(), sgd_of, false, true), waited);
  scaled_steps(device(), adamw_of, false, true);
}

TEST_P(OnDevice, StepsWithAScalerAreRecorded) {
  const Tensors usual = scaled_steps(device(), adamw_of, false, true),
                usual_sgd = scaled_steps(device(), sgd_of, false, true);
  std::optional<testing::GraphTape> tape;
  if (!is_cuda()) tape.emplace();
  expect_close(scaled_steps(device(), adamw_of, true, true), usual);
  expect_close(scaled_steps(device(), sgd_of, true, true), usual_sgd);
  if (tape) {
    EXPECT_EQ(tape->recordings, 2);
  }
}

/// A product with the kept copy of a weight.
struct KeptProduct : torch::autograd::Function<KeptProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight) {
    const at::Tensor copy = kernels::low_precision_copy(weight, at::kBFloat16);
    const at::Tensor rows = input.to(at::kBFloat16);
    context->save_for_backward({rows, copy});
    return rows.mm(copy);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0].mm(saved[1].t()).to(at::kFloat), saved[0].t().mm(gradients[0]).to(at::kFloat)};
  }
};

/// Weights that change between steps in ways that leave no trace, and by a step that is recorded.
TEST_P(OnDevice, RecordedStepsSeeChangesOfWeights) {
  const auto trained = [&](bool graphed) {
    const auto stream = graph_stream(device());
    torch::manual_seed(5);
    Tensors weights;
    for (int i = 0; i < 3; ++i) weights.push_back(torch::randn({16, 16}).to(device()).requires_grad_());
    optim::AdamW optimizer(weights, {.lr = 0.01});
    const auto forward = [&](const at::Tensor& input) {
      return in_precision(device(), MixedPrecision::bf16, [&] {
        at::Tensor states = input;
        for (const auto& weight : weights) states = KeptProduct::apply(states, weight).tanh();
        return states.sum();
      });
    };
    GraphedStep step(
        [&](const Tensors& inputs) {
          optimizer.zero_grad(false);
          const at::Tensor loss = forward(inputs[0]);
          loss.backward();
          optimizer.step();
          return Tensors{loss};
        },
        {.warmup_steps = graphed ? 3 : 100});
    Tensors results;
    for (int i = 0; i < 10; ++i) {
      const at::Tensor input = at::arange(64).add(i).mul(0.37).sin().view({4, 16}).to(device());
      results.push_back(step({input})[0].clone());
      if (i == 5) weights[1].data().mul_(1.5);
      const at::NoGradGuard no_grad;
      if (i == 6) weights[0].copy_(weights[1]);
      results.push_back(forward(input));
    }
    for (const auto& weight : weights) results.push_back(weight.detach().clone());
    return results;
  };
  kernels::keep_copies_on_cpu(true);
  const Tensors usual = trained(false);
  std::optional<testing::GraphTape> tape;
  if (!is_cuda()) tape.emplace();
  expect_close(trained(true), usual, 1e-3);
  if (tape) {
    EXPECT_EQ(tape->recordings, 1);
  }
  kernels::keep_copies_on_cpu(false);
}

}  // namespace
}  // namespace lockstep
