#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <functional>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Parameters named "a" and "b", with gradients.
std::vector<NamedTensor> parameters() {
  std::vector<NamedTensor> result;
  for (const auto* name : {"a", "b"}) {
    at::Tensor tensor = torch::linspace(-1, 1, 35).view({5, 7}).requires_grad_();
    tensor.mutable_grad() = torch::linspace(2, -3, 35).view({5, 7});
    result.push_back({name, tensor});
  }
  return result;
}

Tensors tensors_of(const std::vector<NamedTensor>& named) {
  Tensors result;
  for (const auto& entry : named) result.push_back(entry.tensor);
  return result;
}

TEST(FusedOptimizer, LeavesParametersWithoutAGradientAlone) {
  const auto named = parameters();
  named[1].tensor.mutable_grad().reset();
  const at::Tensor before = named[1].tensor.detach().clone();
  optim::AdamW optimizer(tensors_of(named));
  optimizer.step();
  EXPECT_TRUE(torch::equal(named[1].tensor, before));
  EXPECT_EQ(optimizer_state(optimizer, named).tensors.count("state.b.step"), 0U);
}

/// Three steps in PyTorch 2.11 with torch.nn.utils.clip_grad_norm_(..., 2.0) before each.
TEST(FusedOptimizer, StepsComplexParametersAsTorchDoes) {
  const auto train = [](const auto& make) {
    const at::Tensor numbers = torch::arange(6, at::kFloat);
    const at::Tensor p = torch::complex(numbers * 0.3 - 1, numbers * 0.1).view({2, 3}).requires_grad_();
    const at::Tensor q = torch::ones({2}, at::kDouble).requires_grad_();
    auto optimizer = make(Tensors{p, q});
    for (int i = 0; i < 3; ++i) {
      zero_grad(optimizer);
      (p * c10::complex<double>(1, 0.5) * (i + 1)).abs().square().sum().backward();
      (q * q * 3).sum().backward();
      torch::nn::utils::clip_grad_norm_(Tensors{p, q}, 2.0);
      optimizer.step();
    }
    EXPECT_TRUE(torch::isfinite(q).all().item<bool>());
    return at::view_as_real(p.detach()).view({-1});
  };
  const at::Tensor adamw = train([](const Tensors& all) { return optim::AdamW(all, {.lr = 0.1}); });
  EXPECT_TRUE(
      torch::allclose(adamw,
                      torch::tensor({-0.7050314, 0.0, -0.4047387, -0.0297818, -0.1030980, -0.0774068,
                                     0.0297818, 0.0031034, -0.0774068, 0.1030980, 0.2038460, 0.2038460})
                          .to(at::kFloat),
                      1e-5, 1e-6));
  const at::Tensor sgd =
      train([](const Tensors& all) { return optim::SGD(all, {.lr = 0.1, .momentum = 0.9}); });
  EXPECT_TRUE(
      torch::allclose(sgd,
                      torch::tensor({-0.5160231, 0.0, -0.3612161, 0.0516023, -0.2064092, 0.1032046,
                                     -0.0516023, 0.1548069, 0.1032046, 0.2064092, 0.2580115, 0.2580115})
                          .to(at::kFloat),
                      1e-5, 1e-6));
}

TEST(FusedOptimizer, RunsTheClosureWithGradientsOn) {
  const auto named = parameters();
  optim::SGD optimizer(tensors_of(named), {.lr = 0.5});
  const torch::NoGradGuard no_grad;
  const at::Tensor loss = optimizer.step([&] {
    zero_grad(optimizer);
    at::Tensor sum = named[0].tensor.sum();
    sum.backward();
    return sum;
  });
  EXPECT_TRUE(torch::allclose(named[0].tensor, torch::linspace(-1, 1, 35).view({5, 7}) - 0.5));
  EXPECT_NEAR(loss.item<double>(), 0, 1e-5);
}

TEST(FusedOptimizer, AGradientOfAnotherLayoutMeansTheSame) {
  const auto plain = parameters(), turned = parameters();
  const at::Tensor gradient = turned[0].tensor.grad();
  turned[0].tensor.mutable_grad() = gradient.t().contiguous().t();
  ASSERT_NE(turned[0].tensor.grad().strides(), gradient.strides());
  optim::AdamW(tensors_of(plain)).step();
  optim::AdamW(tensors_of(turned)).step();
  EXPECT_TRUE(torch::equal(plain[0].tensor, turned[0].tensor));
}

TEST(FusedOptimizer, StepsSomeParametersWithGivenGradients) {
  const auto whole = parameters(), parts = parameters();
  optim::AdamW at_once(tensors_of(whole)), piecewise(tensors_of(parts));
  at_once.step();
  for (const auto& entry : parts) {
    piecewise.step_with(piecewise.param_groups().front(), {entry.tensor}, {entry.tensor.grad()});
  }
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::equal(whole[i].tensor, parts[i].tensor));
}

TEST(FusedOptimizer, SchedulersReachItsLearningRate) {
  const auto named = parameters();
  optim::SGD optimizer(tensors_of(named), {.lr = 1});
  torch::optim::StepLR schedule(optimizer, 1, 0.5);
  for (int step = 0; step < 2; ++step) schedule.step();  // LibTorch's begins with its second step.
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  const at::Tensor expected = named[0].tensor - 0.5 * named[0].tensor.grad();
  optimizer.step();
  EXPECT_TRUE(torch::equal(named[0].tensor, expected));
}

TEST(FusedOptimizer, AnAddedGroupHasTheOptionsOfTheConstructor) {
  const auto expect_rate = [](auto optimizer) {
    const at::Tensor added = torch::zeros({1}).requires_grad_();
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({added}));
    EXPECT_EQ(optimizer.param_groups().back().options().get_lr(), 0.25);
  };
  const Tensors some = tensors_of(parameters());
  expect_rate(optim::AdamW(some, {.lr = 0.25}));
  expect_rate(optim::Adam(some, {.lr = 0.25}));
  expect_rate(optim::SGD(some, {.lr = 0.25}));
}

TEST(FusedOptimizer, ASchedulerRefusesGroupsThatItDoesNotKnow) {
  optim::SGD optimizer(tensors_of(parameters()), {.lr = 1});
  optim::LrScheduler scheduler(optimizer, {.name = "linear", .num_training_steps = 4});
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({torch::zeros({1}).requires_grad_()}));
  EXPECT_THROWS(scheduler.step(), UsageError, "has 2 parameter groups, but had 1", "after the last group");
}

TEST(FusedOptimizer, WhatDoesNotFitIsRefused) {
  const Tensors some = tensors_of(parameters());
  EXPECT_THROWS(optim::AdamW(some, {.lr = -1}), UsageError, "AdamW: lr must not be negative, but is -1");
  EXPECT_THROWS(optim::Adam(some, {.betas = {0.9, 1.0}}), UsageError, "Adam: betas", "but is 1");
  EXPECT_THROWS(optim::SGD(some, {.nesterov = true}), UsageError, "nesterov needs momentum");
  EXPECT_THROWS(optim::SGD(some, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), UsageError,
                "nesterov needs zero dampening");
  optim::AdamW optimizer(some);
  some[0].mutable_grad() = some[0].grad().to_sparse();
  EXPECT_THROWS(optimizer.step(), UsageError, "[5, 7]", "sparse gradient");
  at::Tensor wide = torch::zeros({4}).expand({3, 4}).requires_grad_();
  wide.mutable_grad() = torch::ones({3, 4});
  EXPECT_THROWS(optim::AdamW({wide}).step(), UsageError, "[3, 4]", "not dense in memory");
}

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors&)>;
struct Pair {
  const char* name;
  Make ours;
  Make libtorch;
};

std::vector<Pair> pairs() {
  return {
      {"AdamW", [](const Tensors& p) { return std::make_unique<optim::AdamW>(p); },
       [](const Tensors& p) { return std::make_unique<torch::optim::AdamW>(p); }},
      {"Adam",
       [](const Tensors& p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions{.amsgrad = true}); },
       [](const Tensors& p) {
         return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions().amsgrad(true));
       }},
      {"SGD",
       [](const Tensors& p) {
         return std::make_unique<optim::SGD>(p, optim::SgdOptions{.lr = 0.1, .momentum = 0.9});
       },
       [](const Tensors& p) {
         return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1).momentum(0.9));
       }}};
}

class FusedState : public ::testing::TestWithParam<Pair> {};
INSTANTIATE_TEST_SUITE_P(Of, FusedState, ::testing::ValuesIn(pairs()),
                         [](const auto& test) { return std::string(test.param.name); });

/// Three steps with one optimizer, its state into the other, three more: as six steps with the second alone,
/// but for rounding.
void expect_handover(const Make& first, const Make& second) {
  const auto straight = parameters(), handed = parameters();
  const auto alone = second(tensors_of(straight));
  for (int step = 0; step < 6; ++step) alone->step();
  const auto before = first(tensors_of(handed)), after = second(tensors_of(handed));
  for (int step = 0; step < 3; ++step) before->step();
  load_optimizer_state(*after, handed, optimizer_state(*before, handed), "x");
  for (int step = 0; step < 3; ++step) after->step();
  EXPECT_TRUE(torch::allclose(straight[0].tensor, handed[0].tensor, 1e-5, 1e-6));
}

TEST_P(FusedState, GoesOverFromLibTorchAndBack) {
  expect_handover(GetParam().libtorch, GetParam().ours);
  expect_handover(GetParam().ours, GetParam().libtorch);
}

TEST_P(FusedState, ResumesWithTheSameBits) {
  const auto straight = parameters(), resumed = parameters();
  const auto one = GetParam().ours(tensors_of(straight));
  for (int step = 0; step < 5; ++step) one->step();
  const auto first = GetParam().ours(tensors_of(resumed)), second = GetParam().ours(tensors_of(resumed));
  for (int step = 0; step < 2; ++step) first->step();
  load_optimizer_state(*second, resumed, optimizer_state(*first, resumed), "x");
  for (int step = 0; step < 3; ++step) second->step();
  EXPECT_TRUE(torch::equal(straight[0].tensor, resumed[0].tensor));
  EXPECT_EQ(optimizer_state(*one, straight).options, optimizer_state(*second, resumed).options);
}

}  // namespace
}  // namespace lockstep
