#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <functional>

#include "interop/python.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::run_python;
using testing::TemporaryFolder;
using Tensors = std::vector<at::Tensor>;

struct Case {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors&)> make;
  const char* tensors;
};

std::vector<Case> cases() {
  using namespace torch::optim;
  return {{"AdamW",
           [](const Tensors& p) {
             return std::make_unique<AdamW>(p, AdamWOptions(0.01).betas({0.8, 0.9}));
           },
           "state.bias.exp_avg state.bias.exp_avg_sq state.bias.step "
           "state.weight.exp_avg state.weight.exp_avg_sq state.weight.step\n"},
          {"SGD", [](const Tensors& p) { return std::make_unique<SGD>(p, SGDOptions(0.01).momentum(0.9)); },
           "state.bias.momentum_buffer state.weight.momentum_buffer\n"},
          {"RMSprop",
           [](const Tensors& p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).alpha(0.9)); },
           "state.bias.square_avg state.bias.step state.weight.square_avg state.weight.step\n"},
          {"Adagrad",
           [](const Tensors& p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01).lr_decay(0.1)); },
           "state.bias.step state.bias.sum state.weight.step state.weight.sum\n"}};
}

class PythonGoesOn : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(From, PythonGoesOn, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

void step(torch::nn::Linear& model, torch::optim::Optimizer& optimizer) {
  for (auto& parameter : model->parameters()) {
    parameter.mutable_grad() = at::arange(1, parameter.numel() + 1).div(8).reshape(parameter.sizes());
  }
  optimizer.step();
}

/// torch.optim does the next step from the checkpoint, and comes to the same weights and the same state.
TEST_P(PythonGoesOn, WhereTheOptimizerStood) {
  const TemporaryFolder folder;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  torch::manual_seed(5);
  torch::nn::Linear model(3, 2);
  const auto optimizer = GetParam().make(model->parameters());
  const auto prepared = accelerator.prepare(model, *optimizer);
  for (int i = 0; i < 3; ++i) step(model, *optimizer);
  accelerator.save_state(folder / "before");
  char random[64];
  std::snprintf(random, sizeof(random), "%a\n", at::rand({1}, at::kDouble).item<double>());
  step(model, *optimizer);
  accelerator.save_state(folder / "after");
  const std::string told = run_python("checkpoint_peer.py", {folder.path().string()});
  EXPECT_EQ(told.substr(0, told.find('\n') + 1), GetParam().tensors);
  double there = 0;
  double here = 0;
  ASSERT_EQ(std::sscanf(told.c_str() + told.find('\n'), "%la", &there), 1) << told;
  ASSERT_EQ(std::sscanf(random, "%la", &here), 1);
  EXPECT_EQ(there, here);
}

}  // namespace
}  // namespace lockstep
