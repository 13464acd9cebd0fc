// Our fused optimizers against torch.optim's with fused=True (SGD in half-wide numbers: without): the same
// bits in weights and state after every step.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "interop/python.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

constexpr int kSteps = 5;

using Tensors = std::vector<at::Tensor>;
using Made = std::unique_ptr<optim::FusedOptimizer>;

struct Case {
  const char* name;
  std::function<Made(const Tensors&)> make;
};

std::vector<Case> cases() {
  using namespace optim;
  const AdamWOptions adamw{
      .lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true, .maximize = true};
  const AdamOptions adam{
      .lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true, .maximize = true};
  const SgdOptions plain{.lr = 0.1, .weight_decay = 0.01};
  const SgdOptions momentum{.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .maximize = true};
  const SgdOptions nesterov{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  const auto groups = [](const Tensors& all) -> Made {
    return std::make_unique<AdamW>(std::vector<ParameterGroup<AdamWOptions>>{
        {{all[0], all[1]}, {.lr = 0.005}}, {{all[2], all[3]}, {.lr = 0.02, .weight_decay = 0}}});
  };
  return {{"adamw", [](const Tensors& all) { return std::make_unique<AdamW>(all); }},
          {"adamw_all", [=](const Tensors& all) { return std::make_unique<AdamW>(all, adamw); }},
          {"adam", [](const Tensors& all) { return std::make_unique<Adam>(all); }},
          {"adam_all", [=](const Tensors& all) { return std::make_unique<Adam>(all, adam); }},
          {"sgd", [=](const Tensors& all) { return std::make_unique<SGD>(all, plain); }},
          {"sgd_momentum", [=](const Tensors& all) { return std::make_unique<SGD>(all, momentum); }},
          {"sgd_nesterov", [=](const Tensors& all) { return std::make_unique<SGD>(all, nesterov); }},
          {"groups", groups}};
}

const std::vector<std::string> kNames{"matrix", "vector", "cube", "one"};

std::vector<NamedTensor> parameters_of(const TensorMap& start, at::ScalarType type) {
  std::vector<NamedTensor> result;
  for (const auto& name : kNames)
    result.push_back({name, start.at("w." + name).to(type, false, /*copy=*/true).requires_grad_()});
  return result;
}

/// The last one has no gradient at first.
void set_gradients(const std::vector<NamedTensor>& parameters, const TensorMap& start, int step,
                   bool one_is_late) {
  for (const auto& [name, tensor] : parameters) {
    const bool late = name == "one" && step < 2 && one_is_late;
    const auto& gradient = start.at("g." + name + "." + std::to_string(step));
    tensor.mutable_grad() = late ? at::Tensor() : gradient.to(tensor.scalar_type());
  }
}

/// Weights and state under the names that the Python side gives them.
TensorMap everything(const std::string& place, const std::vector<NamedTensor>& parameters,
                     const torch::optim::Optimizer& optimizer) {
  TensorMap result;
  for (const auto& [name, tensor] : parameters) result.emplace(place + name, tensor.detach());
  for (const auto& [key, tensor] : optimizer_state(optimizer, parameters).tensors) {
    if (!key.ends_with(".step")) result.emplace(place + key.substr(std::string("state.").size()), tensor);
  }
  return result;
}

class OptimizersInterop : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    const testing::TemporaryFolder folder;
    testing::run_python("optimizers_peer.py", {folder.path().string()});
    start_ = load_file(folder / "start.safetensors").tensors;
    python_ = load_file(folder / "python.safetensors").tensors;
  }

  void expect_same(at::ScalarType type, const std::string& type_name) {
    const auto parameters = parameters_of(start_, type);
    Tensors tensors;
    for (const auto& entry : parameters) tensors.push_back(entry.tensor);
    const auto optimizer = GetParam().make(tensors);
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(parameters, start_, step, std::string(GetParam().name).find("sgd_") == std::string::npos);
      optimizer->step();
      const std::string place = GetParam().name + ("." + type_name) + "." + std::to_string(step) + ".";
      for (const auto& [name, tensor] : everything(place, parameters, *optimizer))
        EXPECT_TRUE(torch::equal(tensor, python_.at(name)))
            << name << " differs by up to " << (tensor - python_.at(name)).abs().max().item<double>();
    }
  }

  static inline TensorMap start_, python_;
};
INSTANTIATE_TEST_SUITE_P(Of, OptimizersInterop, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(OptimizersInterop, WeightsAndStateAreThoseOfPython) {
  expect_same(at::kFloat, "float32");
  expect_same(at::kDouble, "float64");
  expect_same(at::kBFloat16, "bfloat16");
}

}  // namespace
}  // namespace lockstep
