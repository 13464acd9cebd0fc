// Steps that are recorded as a CUDA graph on a GPU, and run as usual on a CPU.

#include "lockstep/train/graphed_step.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "on_device.hpp"
#include "parallel/reducer_setup.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
using testing::OnDevice;
using Tensors = GraphedStep::Tensors;
constexpr int kSteps = 12, kWarmup = 4;

torch::nn::Sequential small_net(double dropout = 0) {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 32), torch::nn::Tanh(), torch::nn::Dropout(dropout),
                               torch::nn::Linear(32, 1));
}

Tensors batch(int step, const at::Device& device) {
  const at::Tensor rows = at::arange(48).add(step).mul(0.37).sin().view({8, 6});
  return {rows.to(device), rows.sum(1, true).to(device)};
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

/// The losses of all steps, then the weights.
std::vector<at::Tensor> train(Accelerator& accelerator, const MakeOptimizer& make, bool graphed,
                              double dropout = 0) {
  const auto stream = graph_stream(accelerator.device());
  torch::nn::Sequential net = small_net(dropout);
  const auto plain = make(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, *plain);
  const auto train_step = [&, &model = model, &optimizer = optimizer](const Tensors& inputs) {
    const at::Tensor loss = (model(inputs[0]).to(at::kFloat) - inputs[1]).square().mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    return Tensors{loss};
  };
  GraphedStep step(train_step, {.warmup_steps = kWarmup});
  std::vector<at::Tensor> results;
  for (int i = 0; i < kSteps; ++i) {
    const auto inputs = batch(i, accelerator.device());
    results.push_back(graphed ? step(inputs)[0].clone() : train_step(inputs)[0].detach());
    EXPECT_FALSE(results.back().requires_grad());
    for (auto& group : plain->param_groups()) group.options().set_lr(0.02 / (i + 1));
  }
  EXPECT_EQ(step.is_recorded(), graphed && accelerator.device().is_cuda());
  for (const auto& parameter : net->parameters()) results.push_back(parameter.detach().clone());
  return results;
}

/// The learning rate changes after each step. On a GPU it is rounded to float32 in a graph.
TEST_P(OnDevice, AGraphedStepTrainsAsUsualOnes) {
  const std::vector<MakeOptimizer> optimizers = {
      [](auto parameters) {
        return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.02});
      },
      [](auto parameters) {
        return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.02, .amsgrad = true});
      },
      [](auto parameters) { return std::make_unique<optim::SGD>(parameters, optim::SgdOptions{.lr = 0.02}); },
      [](auto parameters) {
        return std::make_unique<optim::SGD>(parameters, optim::SgdOptions{.lr = 0.02, .momentum = 0.9});
      }};
  for (const auto precision : {MixedPrecision::no, MixedPrecision::bf16}) {
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      SCOPED_TRACE(i);
      run(1,
          [&](Accelerator& accelerator) {
            const auto usual = train(accelerator, optimizers[i], false);
            expect_close(train(accelerator, optimizers[i], true), usual);
          },
          {.mixed_precision = precision});
    }
  }
}

TEST_P(OnDevice, EachReplayDrawsTheDropoutOfAUsualStep) {
  const MakeOptimizer make = [](auto parameters) {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.02});
  };
  run(1, [&](Accelerator& accelerator) {
    const auto usual = train(accelerator, make, false, 0.5);
    expect_close(train(accelerator, make, true, 0.5), usual);
  });
}

/// With the collectives of a reducer, which a model in a group of one does not have.
TEST_P(OnDevice, AGraphedStepReducesGradients) {
  run(1, [&](Accelerator& accelerator) {
    const auto stream = graph_stream(device());
    const auto trained = [&](bool reduces) {
      torch::nn::Sequential net = small_net();
      net->to(device());
      std::vector<NamedTensor> parameters;
      for (const auto& entry : net->named_parameters()) parameters.push_back({entry.key(), entry.value()});
      optim::AdamW optimizer(net->parameters(), {.lr = 0.02});
      const DistributedDataParallelOptions options;
      const auto reducer =
          reduces ? parallel::make_reducer(parameters, parallel::first_buckets(parameters, options),
                                           accelerator.process_group(), options)
                  : nullptr;
      GraphedStep step([&](const Tensors& inputs) {
        if (reducer != nullptr) {
          reducer->rebuild_buckets();
          reducer->prepare_for_forward();
        }
        const at::Tensor loss = (net->forward(inputs[0]) - inputs[1]).square().mean();
        zero_grad(optimizer);
        if (reducer != nullptr) {
          reducer->buckets_begin();
          reducer->prepare_for_backward({});
        }
        loss.backward();
        optimizer.step();
        return Tensors{loss};
      });
      std::vector<at::Tensor> results;
      for (int i = 0; i < 2 * kSteps; ++i) results.push_back(step(batch(i, device()))[0].clone());
      for (const auto& parameter : net->parameters()) results.push_back(parameter.detach());
      return results;
    };
    expect_close(trained(true), trained(false));
  });
}

TEST_P(OnDevice, AGraphedStepTakesInputsOfSeveralShapes) {
  const auto stream = graph_stream(device());
  GraphedStep step([](const Tensors& inputs) { return Tensors{inputs[0] * 2 + inputs[1].sum()}; },
                   {.warmup_steps = 1, .max_shapes = 2});
  for (int i = 0; i < 12; ++i) {
    const std::int64_t rows = 1 + i % 3;
    const Tensors inputs{at::full({rows}, i, device()), at::ones({2}, device())};
    EXPECT_TRUE(at::equal(step(inputs)[0], inputs[0] * 2 + 2));
    if (i > 3) {
      EXPECT_EQ(step.is_recorded(), is_cuda() && rows != 1) << i;
    }
  }
}

/// A checkpoint has the number of steps that the device has done.
TEST_P(OnDevice, AGraphedStepCountsItsSteps) {
  const auto stream = graph_stream(device());
  torch::nn::Sequential net = small_net();
  net->to(device());
  optim::AdamW optimizer(net->parameters());
  GraphedStep step(
      [&](const Tensors& inputs) {
        optimizer.zero_grad();
        net->forward(inputs[0]).square().mean().backward();
        optimizer.step();
        return Tensors{};
      },
      {.warmup_steps = 1});
  for (int i = 0; i < kSteps; ++i) EXPECT_TRUE(step(batch(i, device())).empty());
  for (auto& [parameter, state] : optimizer.state()) {
    auto& adam = static_cast<torch::optim::AdamParamState&>(*state);
    EXPECT_EQ(adam.step(), kSteps);
    // As when a checkpoint is read.
    adam.exp_avg(adam.exp_avg().clone());
  }
  // It is recorded anew.
  step(batch(0, device()));
  EXPECT_EQ(step.is_recorded(), is_cuda());
  for (auto& [parameter, state] : optimizer.state())
    EXPECT_EQ(static_cast<torch::optim::AdamParamState&>(*state).step(), kSteps + 1);
}

TEST_P(OnDevice, WhatAGraphCannotDoIsRefused) {
  EXPECT_THROWS(GraphedStep([](const Tensors& inputs) { return inputs; }, {.warmup_steps = 0}), UsageError,
                "warmup_steps must be at least 1, not 0");
  if (!is_cuda()) return;
  GraphedStep copy([](const Tensors& inputs) { return Tensors{inputs[0] * 2}; }, {.warmup_steps = 1});
  EXPECT_THROWS(copy(batch(0, device())), UsageError,
                "Keep the result of graph_stream() from before the model is made");
  const auto stream = graph_stream(device());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(copy(batch(i, device()))[0], batch(i, device())[0] * 2));
  EXPECT_THROWS(copy({batch(0, at::kCPU)[0]}), UsageError, "input 0 is on cpu, but those of the first step are on cuda:0");

  torch::nn::Sequential net = small_net();
  net->to(device());
  optim::Adam adam(net->parameters());
  torch::optim::SGD sgd(net->parameters(), 0.1);
  AcceleratedOptimizer prepared(sgd);
  double seen = 0;
  const auto backward = [&](const Tensors& inputs) {
    const at::Tensor loss = net->forward(inputs[0]).square().mean();
    net->zero_grad();
    loss.backward();
    return loss;
  };
  const auto recorded = [&](const GraphedStep::Function& function) {
    GraphedStep step(function, {.warmup_steps = 1});
    step(batch(0, device()));
    step(batch(1, device()));
  };
  EXPECT_THROWS(recorded([&](const Tensors& inputs) {
                  seen += backward(inputs).item<double>();
                  return Tensors{};
                }),
                UsageError, "It must not wait for the device");
  EXPECT_THROWS(recorded([&](const Tensors& inputs) {
                  backward(inputs);
                  prepared.step();
                  return Tensors{};
                }),
                UsageError, "Use an optimizer of lockstep::optim");
  int calls = 0;
  EXPECT_THROWS(recorded([&](const Tensors& inputs) {
                  backward(inputs);
                  if (++calls > 1) adam.step();
                  return Tensors{};
                }),
                UsageError, "an optimizer's first step for a parameter cannot be recorded");
  // Afterwards the device works as before.
  adam.zero_grad();
  backward(batch(0, device()));
  adam.step();
  EXPECT_GT(backward(batch(0, device())).item<double>(), 0);
}

}  // namespace
}  // namespace lockstep
