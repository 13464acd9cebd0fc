// A GradScaler with the optimizers of this library: the device leaves out steps, and the host asks later.

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <limits>
#include <memory>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "train/loss_scaling.hpp"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// The factors of the losses: of the first step as well as of later ones.
const std::vector<double> kFactors = {kInfinite, 0.25, 2, kInfinite, kInfinite, -1, 0.5};

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

std::vector<Make> all_kinds() {
  return {
      [](auto parameters) {
        return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.1, .amsgrad = true});
      },
      [](auto parameters) {
        return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1});
      },
      [](auto parameters) {
        return std::make_unique<optim::SGD>(parameters,
                                            optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
      },
      [](auto parameters) { return std::make_unique<optim::SGD>(parameters, optim::SgdOptions{.lr = 0.1}); }};
}

struct Trained {
  std::vector<at::Tensor> weights;
  OptimizerState state;
  std::vector<bool> stepped;
};

/// With a scaler, or without a scale and with the steps left out by the program.
Trained trained(const Make& make, bool scales) {
  torch::manual_seed(2);
  std::vector<NamedTensor> named;
  for (const char* name : {"a", "b"}) named.push_back({name, torch::randn({5}).requires_grad_()});
  const auto optimizer = make({named[0].tensor, named[1].tensor});
  optim::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  Trained result;
  for (const double factor : kFactors) {
    zero_grad(*optimizer);
    const at::Tensor loss = (named[0].tensor.square() + named[1].tensor).sum() * factor;
    if (scales) {
      scaler.scale(loss).backward();
      result.stepped.push_back(scaler.step(*optimizer));
      scaler.update();
    } else {
      loss.backward();
      result.stepped.push_back(factor != kInfinite);
      if (factor != kInfinite) optimizer->step();
    }
  }
  result.state = optimizer_state(*optimizer, named);
  for (const auto& entry : named) result.weights.push_back(entry.tensor.detach());
  return result;
}

TEST(LateSteps, LeaveOutWhatIsNotFinite) {
  for (const auto& make : all_kinds()) {
    const Trained scaled = trained(make, true), plain = trained(make, false);
    EXPECT_EQ(scaled.stepped, plain.stepped);
    for (std::size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_TRUE(at::equal(scaled.weights[i], plain.weights[i]));
    ASSERT_EQ(scaled.state.tensors.size(), plain.state.tensors.size());
    for (const auto& [name, tensor] : plain.state.tensors)
      EXPECT_TRUE(at::equal(scaled.state.tensors.at(name), tensor)) << name;
  }
}

/// Parameters that have no gradient in some steps, and steps without a scale in between.
TEST(LateSteps, CountTheStepsOfEachParameter) {
  const auto steps_of = [](bool scales) {
    const at::Tensor a = torch::ones({3}).requires_grad_(), b = torch::ones({3}).requires_grad_();
    optim::AdamW optimizer({a, b}, {.lr = 0.1});
    optim::GradScaler scaler({.init_scale = 8});
    const auto step = [&](const at::Tensor& loss, bool is_finite) {
      optimizer.zero_grad();
      if (!scales) {
        loss.backward();
        if (is_finite) optimizer.step();
        return;
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    };
    step((a + b).sum(), true);
    step((a + b).sum() * kInfinite, false);
    step(a.sum(), true);
    step(b.sum() * kInfinite, false);
    step(b.sum(), true);
    optimizer.zero_grad();
    (a * b).sum().backward();
    optimizer.step();
    step((a - b).sum() * kInfinite, false);
    step((a - b).sum(), true);
    std::vector<at::Tensor> result{a.detach(), b.detach()};
    for (const auto& parameter : {a, b}) {
      const auto& state =
          static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
      result.push_back(at::scalar_tensor(state.step(), at::kLong));
    }
    return result;
  };
  const auto scaled = steps_of(true), plain = steps_of(false);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(scaled[i], plain[i])) << i;
  EXPECT_EQ(plain[2].item<int>(), 4);
}

/// Loading forgets steps that were left out before it.
TEST(LateSteps, AreNotTakenOffALoadedState) {
  const at::Tensor weight = torch::ones({3}).requires_grad_();
  const std::vector<NamedTensor> named{{"weight", weight}};
  optim::AdamW optimizer({weight}, {.lr = 0.1});
  optim::GradScaler scaler({.init_scale = 8});
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  step(1);
  const OptimizerState saved = optimizer_state(optimizer, named);
  step(1);
  step(kInfinite);
  load_optimizer_state(optimizer, named, saved, "here");
  EXPECT_EQ(optimizer_state(optimizer, named).tensors.at("state.weight.step").item<int>(), 1);
  step(kInfinite);
  step(1);
  EXPECT_EQ(optimizer_state(optimizer, named).tensors.at("state.weight.step").item<int>(), 2);
}

/// A class of the program's own may do more in a step.
TEST(LateSteps, AreForNoClassesOfPrograms) {
  struct Counting final : optim::AdamW {
    using BasicAdam::BasicAdam;
    at::Tensor step(LossClosure closure) override {
      ++steps;
      return BasicAdam::step(std::move(closure));
    }
    int steps = 0;
  };
  const at::Tensor weight = torch::ones({3}).requires_grad_();
  Counting optimizer(std::vector<at::Tensor>{weight});
  optim::GradScaler scaler;
  for (const double factor : {1.0, kInfinite, 1.0}) {
    optimizer.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
    EXPECT_EQ(scaler.step(optimizer), factor == 1.0);
    scaler.update();
  }
  EXPECT_EQ(optimizer.steps, 2);
}

TEST(LateSteps, AreReportedByALossScaling) {
  const at::Tensor one = torch::ones({2}).requires_grad_(), other = torch::ones({2}).requires_grad_();
  optim::AdamW first({one}), second({other});
  train::LossScaling scaling({.init_scale = 8});
  scaling.add_optimizer(first);
  scaling.add_optimizer(second);
  scaling.scale((one * kInfinite).sum()).backward();
  scaling.scale(other.sum()).backward();
  EXPECT_FALSE(scaling.step(first));
  EXPECT_TRUE(scaling.step(second));
  EXPECT_TRUE(scaling.skipped(first));
  EXPECT_FALSE(scaling.skipped(second));
  EXPECT_TRUE(scaling.any_skipped());
  EXPECT_EQ(scaling.get_scale(), 4);
}

}  // namespace
}  // namespace lockstep
