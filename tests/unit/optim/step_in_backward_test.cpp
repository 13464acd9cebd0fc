#include "lockstep/optim/step_in_backward.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;
using Weights = std::vector<at::Tensor>;

/// The same every time, on every thread: ranks share PyTorch's random numbers here.
at::Tensor numbers(at::IntArrayRef sizes, double salt) {
  const at::Tensor result = torch::empty(sizes);
  return torch::arange(result.numel()).add(salt).mul(salt).sin().view(sizes);
}

torch::nn::Sequential net() {
  torch::nn::Sequential result(torch::nn::Linear(12, 20), torch::nn::Tanh(), torch::nn::Linear(20, 5));
  const at::NoGradGuard no_grad;
  for (auto& parameter : result->parameters()) parameter.copy_(numbers(parameter.sizes(), 1.7));
  return result;
}

/// The weights after some steps, stepped in backward or after it.
template <class Optimizer, class Options>
Weights train(const ProcessGroup& group, const DistributedDataParallelOptions& ddp_options,
              const Options& options, bool in_backward) {
  auto model = net();
  const auto all = model->parameters();
  Optimizer optimizer(std::vector<optim::ParameterGroup<Options>>{{{all[0], all[1]}, options},
                                                                  {{all[2], all[3]}, {.lr = 0.02}}});
  DistributedDataParallel ddp(model, group, ddp_options);
  if (in_backward) optim::step_in_backward(ddp, optimizer);
  for (int step = 0; step < 5; ++step) {
    ddp(numbers({6, 12}, 2.3 + step + 0.1 * group.rank())).square().sum().backward();
    for (const auto& parameter : all) {
      EXPECT_EQ(parameter.grad().defined(), !in_backward || group.size() == 1);
    }
    optimizer.step();
    ddp.zero_grad();
  }
  Weights result;
  for (const auto& parameter : all) result.push_back(parameter.detach());
  return result;
}

class InBackward : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, InBackward, ::testing::Values(1, 2, 3));

TEST_P(InBackward, HasTheBitsOfAStepAfterIt) {
  run_group(GetParam(), [&](const ProcessGroup& group) {
    for (const bool view : {false, true}) {
      const DistributedDataParallelOptions ddp{.bucket_cap_mb = 0.0005, .gradient_as_bucket_view = view};
      const optim::AdamWOptions adamw{.lr = 0.01, .weight_decay = 0.1};
      const optim::SgdOptions sgd{.lr = 0.01, .momentum = 0.9, .nesterov = true};
      const auto adamw_after = train<optim::AdamW>(group, ddp, adamw, false);
      const auto adamw_inside = train<optim::AdamW>(group, ddp, adamw, true);
      const auto sgd_after = train<optim::SGD>(group, ddp, sgd, false);
      const auto sgd_inside = train<optim::SGD>(group, ddp, sgd, true);
      for (std::size_t i = 0; i < adamw_after.size(); ++i) {
        EXPECT_TRUE(torch::equal(adamw_after[i], adamw_inside[i])) << i;
        EXPECT_TRUE(torch::equal(sgd_after[i], sgd_inside[i])) << i;
      }
    }
  });
}

TEST(StepInBackward, WhatNeedsAllGradientsFirstIsRefused) {
  run_group(2, [&](const ProcessGroup& group) {
    const auto refused = [&](const DistributedDataParallelOptions& options, const char* why) {
      auto model = net();
      optim::AdamW optimizer(model->parameters());
      DistributedDataParallel ddp(model, group, options);
      EXPECT_THROWS(optim::step_in_backward(ddp, optimizer), UsageError, why);
    };
    refused({.find_unused_parameters = true}, "find_unused_parameters");
    refused({.static_graph = true}, "static_graph");
    refused({.non_finite_gradients = NonFiniteGradients::skip}, "whether a step is skipped");
    auto model = net();
    optim::AdamW part({model->parameters()[0]}), whole(model->parameters());
    DistributedDataParallel ddp(model, group);
    EXPECT_THROWS(optim::step_in_backward(ddp, part), UsageError, "no parameter '0.bias'");
    optim::step_in_backward(ddp, whole);
    const auto alone = ddp.no_sync();
    EXPECT_THROWS(ddp(torch::ones({1, 12})), UsageError, "cannot be accumulated");
    EXPECT_THROWS(ddp.join([] {}), UsageError, "cannot be applied in backward");
  });
}

}  // namespace
}  // namespace lockstep
