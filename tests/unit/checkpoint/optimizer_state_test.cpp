#include "lockstep/checkpoint/optimizer_state.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;
using Tensors = std::vector<at::Tensor>;
using Optimizer = torch::optim::Optimizer;

/// Two groups of parameters, one of which has no gradient at first.
struct Model {
  explicit Model(std::uint64_t seed) {
    torch::manual_seed(seed);
    first = torch::nn::Linear(3, 4);
    second = torch::nn::Linear(4, 1);
    unused = torch::zeros({2}, at::TensorOptions().requires_grad(true));
  }

  Tensors weights() const { return {first->weight, second->weight, unused}; }
  Tensors biases() const { return {first->bias, second->bias}; }
  std::vector<NamedTensor> names() const {
    return {{"first.weight", first->weight},
            {"first.bias", first->bias},
            {"second.weight", second->weight},
            {"second.bias", second->bias},
            {"first.weight2", first->weight}};
  }

  void train(Optimizer& optimizer, int steps) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor input = at::linspace(-1, 1 + step, 12).reshape({4, 3});
      optimizer.zero_grad();
      second->forward(torch::tanh(first->forward(input))).square().mean().backward();
      optimizer.step();
    }
  }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  at::Tensor unused;
};

template <class Kind, class Options>
std::unique_ptr<Optimizer> make(const Model& model, const Options& options, double second_lr) {
  auto second = std::make_unique<Options>(options);
  second->lr(second_lr);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(model.weights());
  groups.emplace_back(model.biases(), std::move(second));
  return std::make_unique<Kind>(groups, options);
}

using Make = std::function<std::unique_ptr<Optimizer>(const Model&, double)>;

struct Case {
  const char* name;
  Make make;
  /// Its tensors for a parameter, in the order of their names.
  std::vector<std::string> fields;
};

const std::vector<Case>& cases() {
  using namespace torch::optim;
  static const std::vector<Case> all{
      {"AdamW",
       [](const Model& m, double lr) {
         return make<AdamW>(m, AdamWOptions(lr).betas({0.8, 0.95}).weight_decay(0.1), lr / 3);
       },
       {"exp_avg", "exp_avg_sq", "step"}},
      {"Adam",
       [](const Model& m, double lr) {
         return make<Adam>(m, AdamOptions(lr).amsgrad(true).eps(1e-6), lr / 3);
       },
       {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}},
      {"SGD",
       [](const Model& m, double lr) {
         return make<SGD>(m, SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(0.01), lr / 3);
       },
       {"momentum_buffer"}},
      {"RMSprop",
       [](const Model& m, double lr) {
         return make<RMSprop>(m, RMSpropOptions(lr).momentum(0.5).centered(true).alpha(0.9), lr / 3);
       },
       {"grad_avg", "momentum_buffer", "square_avg", "step"}},
      {"Adagrad",
       [](const Model& m, double lr) { return make<Adagrad>(m, AdagradOptions(lr).lr_decay(0.01), lr / 3); },
       {"step", "sum"}},
  };
  return all;
}

class EveryOptimizer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryOptimizer, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

void expect_equal_weights(const Model& one, const Model& other) {
  for (std::size_t i = 0; i < one.names().size(); ++i) {
    EXPECT_TRUE(at::equal(one.names()[i].tensor, other.names()[i].tensor)) << one.names()[i].name;
  }
}

/// Through files, as a checkpoint does.
OptimizerState through_files(const OptimizerState& state) {
  const TemporaryFolder folder;
  save_file(state.tensors, folder / "x");
  return {load_file(folder / "x").tensors, json::parse(state.options).dump()};
}

TEST_P(EveryOptimizer, ResumesWithTheSameBits) {
  Model straight(1);
  const auto optimizer = GetParam().make(straight, 0.01);
  straight.train(*optimizer, 3);
  optimizer->param_groups()[1].options().set_lr(0.0125);
  const auto state = through_files(optimizer_state(*optimizer, straight.names()));

  Model resumed(2);
  const auto other = GetParam().make(resumed, 0.5);
  resumed.train(*other, 2);  // Its own state must go.
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < resumed.names().size(); ++i) {
    resumed.names()[i].tensor.copy_(straight.names()[i].tensor);
  }
  load_optimizer_state(*other, resumed.names(), state, "x");
  {
    const torch::AutoGradMode grad(true);
    straight.train(*optimizer, 4);
    resumed.train(*other, 4);
  }
  expect_equal_weights(straight, resumed);
  EXPECT_EQ(optimizer_state(*other, resumed.names()).options,
            optimizer_state(*optimizer, straight.names()).options);
}

/// Parameters are found by their names: a program may list those of a group in another order.
TEST_P(EveryOptimizer, TakesTheParametersOfAGroupInAnyOrder) {
  Model straight(1), resumed(1);
  const auto optimizer = GetParam().make(straight, 0.01), other = GetParam().make(resumed, 0.01);
  straight.train(*optimizer, 3);
  resumed.train(*other, 3);
  for (auto& group : other->param_groups()) std::ranges::reverse(group.params());
  // The fifth name is of the first group's first parameter again; the reversed groups name the third one.
  std::vector<NamedTensor> names = resumed.names(), own = straight.names();
  names.back() = {"unused", resumed.unused}, own.back() = {"unused", straight.unused};
  load_optimizer_state(*other, names, optimizer_state(*optimizer, own), "x");
  straight.train(*optimizer, 2);
  resumed.train(*other, 2);
  expect_equal_weights(straight, resumed);
}

TEST_P(EveryOptimizer, NamesItsTensorsAfterTheParameters) {
  Model model(1);
  const auto optimizer = GetParam().make(model, 0.01);
  model.train(*optimizer, 1);
  const auto state = optimizer_state(*optimizer, model.names());
  for (const auto& field : GetParam().fields) {
    EXPECT_EQ(state.tensors.count("state.first.weight." + field), 1U) << field;
    EXPECT_EQ(state.tensors.count("state.second.bias." + field), 1U) << field;
  }
  const json options = json::parse(state.options);
  EXPECT_EQ(options["optimizer"], GetParam().name);
  EXPECT_EQ(options["param_groups"][0]["params"], (json{"first.weight", "second.weight", "group0.param2"}));
  EXPECT_EQ(options["param_groups"][1]["lr"], 0.01 / 3);
}

TEST_P(EveryOptimizer, TakesNothingFromAnotherKindOrModel) {
  Model model(1);
  const auto optimizer = GetParam().make(model, 0.01);
  model.train(*optimizer, 1);
  const auto good = optimizer_state(*optimizer, model.names());
  const auto refuse = [&](OptimizerState state, const std::string& why) {
    EXPECT_THROWS(load_optimizer_state(*optimizer, model.names(), state, "x"), DataError, "x does not fit",
                  why);
  };
  const auto changed = [&](const std::function<void(json&)>& change) {
    json options = json::parse(good.options);
    change(options);
    return OptimizerState{good.tensors, options.dump()};
  };
  refuse(changed([](json& o) { o["optimizer"] = "LAMB"; }), "it is of LAMB");
  refuse(changed([](json& o) { o["param_groups"].erase(1); }), "it has 1 parameter groups");
  refuse(changed([](json& o) { o["param_groups"][1]["params"][0] = "other"; }),
         "'first.bias' is only in the program");
  refuse(changed([](json& o) { o["param_groups"][0].erase("lr"); }), "'lr' not found");
  refuse(changed([](json& o) { o["param_groups"][0]["lr"] = "fast"; }), "number");
  refuse({good.tensors, "{"}, "parse error");
  OptimizerState state = good;
  state.tensors["state.nobody.exp_avg"] = at::zeros({1});
  refuse(state, "1 of its tensors belong to no parameter");
  state = good;
  state.tensors["state.first.weight." + GetParam().fields[0]] = at::zeros({5});
  refuse(state, "another shape");
  EXPECT_EQ(optimizer_state(*optimizer, model.names()).options, good.options);
}

TEST(OptimizerState, RefusesKindsItDoesNotKnow) {
  Model model(1);
  torch::optim::LBFGS optimizer(model.biases(), torch::optim::LBFGSOptions(1));
  EXPECT_THROWS(optimizer_state(optimizer, model.names()), UsageError,
                "SGD, Adam, AdamW, RMSprop and Adagrad");
  struct Derived : torch::optim::SGD {
    using SGD::SGD;
  };
  Derived derived(model.biases(), torch::optim::SGDOptions(1));
  EXPECT_THROWS(optimizer_state(derived, model.names()), UsageError, "no classes derived from them");
}

}  // namespace
}  // namespace lockstep
