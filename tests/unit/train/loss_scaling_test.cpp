// The loss scale of float16, for one optimizer and for two: its rules also apply on a CPU.
#include "train/loss_scaling.hpp"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <limits>
#include <optional>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// The numbers of torch.amp.GradScaler("cpu", init_scale=8, growth_interval=2).
TEST(GradScaler, ScalesSkipsAndGrows) {
  const at::Tensor weight = torch::ones({2}).requires_grad_();
  torch::optim::SGD sgd({weight}, 1.0);
  optim::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  const auto step = [&](double factor) {
    sgd.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
    const bool stepped = scaler.step(sgd);
    scaler.update();
    return stepped;
  };
  EXPECT_TRUE(step(0.25));
  EXPECT_TRUE(torch::equal(weight, torch::full({2}, 0.75)));
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_TRUE(torch::equal(weight, torch::full({2}, 0.75)));
  EXPECT_TRUE(step(0.25));
  const std::string state = scaler.state_dict();
  EXPECT_TRUE(step(0.25));
  EXPECT_EQ(scaler.get_scale(), 8);
  optim::GradScaler other;
  other.load_state_dict(state);
  EXPECT_EQ(other.get_scale(), 4);
  EXPECT_EQ(other.state_dict(), state);
  EXPECT_THROWS(other.load_state_dict("{}"), DataError, "GradScaler");
}

/// Those of an embedding with `sparse`, of which a token occurs twice.
TEST(GradScaler, UnscalesTheValuesOfSparseGradients) {
  const at::Tensor weight = torch::zeros({4, 2}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 1.0);
  optim::GradScaler scaler;
  for (const double factor : {1.0, std::numeric_limits<double>::infinity()}) {
    weight.mutable_grad().reset();
    const at::Tensor rows = at::embedding(weight, at::tensor({1, 1, 3}, at::kLong), -1, false, true);
    scaler.scale(rows.sum() * factor).backward();
    ASSERT_TRUE(weight.grad().is_sparse());
    EXPECT_EQ(scaler.step(optimizer), factor == 1.0);
    scaler.update();
  }
  EXPECT_TRUE(at::equal(weight, at::tensor({0, 0, -2, -2, 0, 0, -1, -1}, at::kFloat).view({4, 2})));
}

TEST(GradScaler, UnscalesOnceForClipping) {
  const at::Tensor weight = torch::ones({2}).requires_grad_();
  torch::optim::SGD sgd({weight}, 1.0);
  optim::GradScaler scaler;
  scaler.scale((weight * 0.5).sum()).backward();
  scaler.unscale(sgd);
  scaler.unscale(sgd);
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 0.5)));
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_THROWS(scaler.step(sgd), UsageError, "twice");
  const at::Tensor half = torch::ones({2}, torch::kHalf).requires_grad_();
  half.mutable_grad() = torch::ones({2}, torch::kHalf);
  torch::optim::SGD wrong({half}, 1.0);
  EXPECT_THROWS(scaler.step(wrong), UsageError, "float16");
}

/// Two optimizers with one loss scale: float16's rules, with numbers that a CPU can compute.
class TwoOptimizers : public ::testing::Test {
 protected:
  TwoOptimizers() {
    scaling_.add_optimizer(first_);
    scaling_.add_optimizer(second_);
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  void backward(const at::Tensor& weight, double factor) {
    scaling_.scale((weight * factor).sum()).backward();
  }

  at::Tensor one_ = torch::ones({2}).requires_grad_();
  at::Tensor other_ = torch::ones({2}).requires_grad_();
  torch::optim::SGD first_{{one_}, 1.0};
  torch::optim::SGD second_{{other_}, 1.0};
  train::LossScaling scaling_{{.init_scale = 8, .growth_interval = 2}};
};

/// The second one's gradients were computed with the scale, which the first one's step must not have changed.
TEST_F(TwoOptimizers, ChangeTheScaleOnceAfterBothHaveStepped) {
  backward(one_, kInfinity);
  backward(other_, 0.25);
  EXPECT_FALSE(scaling_.step(first_));
  EXPECT_TRUE(scaling_.step(second_));
  EXPECT_TRUE(torch::equal(other_, torch::full({2}, 0.75)));
  EXPECT_TRUE(scaling_.skipped(first_));
  EXPECT_FALSE(scaling_.skipped(second_)) << "its own step was made";
  EXPECT_TRUE(scaling_.any_skipped());
  EXPECT_EQ(scaling_.get_scale(), 4) << "one overflow, not two";
  for (int window = 0; window < 2; ++window) {
    EXPECT_EQ(scaling_.get_scale(), 4) << "it grows after two windows, not after two optimizers";
    first_.zero_grad();
    second_.zero_grad();
    backward(one_, 0.25);
    backward(other_, 0.25);
    EXPECT_TRUE(scaling_.step(first_));
    EXPECT_TRUE(scaling_.step(second_));
  }
  EXPECT_FALSE(scaling_.any_skipped());
  EXPECT_EQ(scaling_.get_scale(), 8);
}

/// Like two networks trained against each other; clipping one does not change the other's gradients.
TEST_F(TwoOptimizers, MayStepInTurnOrNotAtAll) {
  for (int i = 0; i < 2; ++i) {
    first_.zero_grad();
    second_.zero_grad();
    backward(one_, 0.25);
    scaling_.unscale({one_});
    EXPECT_TRUE(torch::equal(one_.grad(), torch::full({2}, 0.25)));
    EXPECT_TRUE(scaling_.step(first_));
    backward(other_, 0.25);
    scaling_.unscale({other_});
    EXPECT_TRUE(torch::equal(other_.grad(), torch::full({2}, 0.25)));
    EXPECT_TRUE(scaling_.step(second_));
  }
  EXPECT_TRUE(torch::equal(other_, torch::full({2}, 0.5)));
  const double scale = scaling_.get_scale();
  for (int i = 0; i < 2; ++i) {
    first_.zero_grad();
    backward(one_, kInfinity);
    EXPECT_FALSE(scaling_.step(first_)) << "the other one does not step";
  }
  EXPECT_EQ(scaling_.get_scale(), scale / 4);
}

/// Otherwise a training whose loss is NaN would skip its steps for ever.
TEST(GradScaler, GivesUpWhenNoScaleHelps) {
  const at::Tensor weight = torch::ones({2}).requires_grad_();
  torch::optim::SGD sgd({weight}, 1.0);
  optim::GradScaler scaler;
  int steps = 0;
  const auto train = [&] {
    for (; steps < 1000; ++steps) {
      weight.mutable_grad().reset();
      scaler.scale((weight * std::numeric_limits<double>::quiet_NaN()).sum()).backward();
      EXPECT_FALSE(scaler.step(sgd));
      scaler.update();
    }
  };
  EXPECT_THROWS(train(), Error, "not finite", "2^-127");
  EXPECT_EQ(steps, 16 + 127 - 1) << "from 2^16";
}

/// One optimizer, whose gradient is the loss's factor.
class OneOptimizer : public ::testing::Test {
 protected:
  OneOptimizer() { scaling_.add_optimizer(sgd_); }

  void backward(double factor) { scaling_.scale((weight_ * factor).sum()).backward(); }
  void expect_gradient(double value) { EXPECT_TRUE(torch::equal(weight_.grad(), torch::full({2}, value))); }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  at::Tensor weight_ = torch::ones({2}).requires_grad_();
  torch::optim::SGD sgd_{{weight_}, 1.0};
  train::LossScaling scaling_{{.init_scale = 8, .growth_interval = 2}};
};

/// As a program does whose norm is too large. In place as well, as in bucket views.
TEST_F(OneOptimizer, MayLeaveOutItsStepAfterClipping) {
  for (const bool in_place : {false, true}) {
    backward(1);
    scaling_.unscale({weight_});
    expect_gradient(1);
    in_place ? void(weight_.grad().zero_()) : weight_.mutable_grad().reset();
  }
  backward(0.5);
  scaling_.unscale({weight_});
  scaling_.unscale({weight_});
  expect_gradient(0.5);
  EXPECT_TRUE(scaling_.step(sgd_));
  EXPECT_TRUE(torch::equal(weight_, torch::full({2}, 0.5)));
}

/// Otherwise a program that leaves out steps of infinite norm would never step again.
TEST_F(OneOptimizer, LowersTheScaleByAnOverflowWhoseStepWasLeftOut) {
  for (int i = 0; i < 2; ++i) {
    backward(kInfinity);
    scaling_.unscale({weight_});
    weight_.mutable_grad().reset();
  }
  backward(0.25);
  EXPECT_EQ(scaling_.get_scale(), 2);
  EXPECT_TRUE(scaling_.step(sgd_));
  EXPECT_TRUE(torch::equal(weight_, torch::full({2}, 0.75)));
}

TEST_F(OneOptimizer, DoesNotDivideAgainAfterItsStep) {
  backward(0.25);
  EXPECT_TRUE(scaling_.step(sgd_));
  scaling_.unscale({weight_});
  expect_gradient(0.25);
  EXPECT_TRUE(scaling_.step(sgd_)) << "with the same gradient, as without a scale";
  EXPECT_TRUE(torch::equal(weight_, torch::full({2}, 0.5)));
}

TEST_F(OneOptimizer, RefusesGradientsOfDifferentScales) {
  const at::Tensor other = torch::zeros({2}).requires_grad_();
  (weight_ * 0.25).sum().backward();
  EXPECT_THROWS(scaling_.step(sgd_), UsageError, "no loss was scaled");
  weight_.mutable_grad().reset();
  backward(0.25);
  scaling_.unscale({weight_});
  backward(0.25);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROWS(scaling_.unscale({weight_}), UsageError, "before the next backward");
    EXPECT_THROWS(scaling_.step(sgd_), UsageError, "mixture");
    scaling_.scale(other.sum()).backward();
  }
  weight_.mutable_grad().reset();
  backward(0.25);
  EXPECT_TRUE(scaling_.step(sgd_));
}

/// PyTorch divides by the new scale, which is wrong: the loss was multiplied by the one before.
TEST_F(OneOptimizer, UnscalesByTheScaleOfTheLoss) {
  for (const int losses_after : {0, 1}) {
    optim::GradScaler scaler({.init_scale = 8});
    torch::optim::SGD sgd({weight_}, 1.0);
    scaler.scale((weight_ * kInfinity).sum()).backward();
    scaler.unscale(sgd);
    weight_.mutable_grad().reset();
    for (int i = 0; i < 2; ++i) scaler.scale((weight_ * 0.25).sum()).backward();
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 4);
    for (int i = 0; i < losses_after; ++i) scaler.scale((weight_ * 0.25).sum()).backward();
    scaler.unscale(sgd);
    expect_gradient(0.5 + 0.25 * losses_after);
    weight_.mutable_grad().reset();
  }
}

/// IUST and ICST: PyTorch skips the step because of what was found before the second loss.
TEST_F(OneOptimizer, SkipsAMixtureThatIsNotFinite) {
  backward(kInfinity);
  scaling_.unscale({weight_});
  backward(0.25);
  EXPECT_FALSE(scaling_.step(sgd_));
  EXPECT_EQ(scaling_.get_scale(), 4) << "one overflow, not two";
  weight_.mutable_grad().reset();
  backward(0.25);
  EXPECT_TRUE(scaling_.step(sgd_));
  EXPECT_TRUE(torch::equal(weight_, torch::full({2}, 0.75)));
}

/// As torch.amp.GradScaler.load_state_dict(), which keeps what the optimizers are known for.
TEST_F(OneOptimizer, KeepsItsGradientsWhenAScaleIsLoaded) {
  for (const bool unscaled : {false, true}) {
    backward(0.25);
    if (unscaled) scaling_.unscale({weight_});
    scaling_.load_state_dict(R"({"scale":32.0,"growth_tracker":1})");
    const at::Tensor before = weight_.detach().clone();
    EXPECT_TRUE(scaling_.step(sgd_));
    EXPECT_TRUE(torch::equal(weight_, before - 0.25));
    weight_.mutable_grad().reset();
  }
}

/// The first one's overflow lowers the scale while the second one's gradients wait.
TEST_F(TwoOptimizers, KeepGradientsThatWaitWhenTheScaleChanges) {
  backward(other_, 0.25);
  backward(one_, kInfinity);
  EXPECT_FALSE(scaling_.step(first_));
  first_.zero_grad();
  backward(other_, 0.25);
  EXPECT_EQ(scaling_.get_scale(), 4);
  EXPECT_TRUE(scaling_.step(second_));
  EXPECT_TRUE(torch::equal(other_, torch::full({2}, 0.5)));
}

/// The second one is first seen after the update.
TEST(GradScaler, UnscalesAnOptimizerThatItHasNotSeenByTheScaleOfItsLoss) {
  const at::Tensor one = torch::ones({2}).requires_grad_(), other = torch::ones({2}).requires_grad_();
  torch::optim::SGD first({one}, 1.0), second({other}, 1.0);
  optim::GradScaler scaler({.init_scale = 8});
  scaler.scale((one * std::numeric_limits<double>::infinity()).sum() + (other * 0.25).sum()).backward();
  EXPECT_FALSE(scaler.step(first));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_TRUE(scaler.step(second));
  EXPECT_TRUE(torch::equal(other, torch::full({2}, 0.75)));
}

/// Two networks that are clipped together; the loss of the one does not reach the other.
TEST_F(TwoOptimizers, AreClippedBeforeTheOthersLoss) {
  backward(one_, 0.25);
  scaling_.unscale({one_});
  backward(other_, 0.5);
  scaling_.unscale({other_});
  EXPECT_TRUE(scaling_.step(first_));
  EXPECT_TRUE(scaling_.step(second_));
  EXPECT_TRUE(torch::equal(one_, torch::full({2}, 0.75)));
  EXPECT_TRUE(torch::equal(other_, torch::full({2}, 0.5)));
}

/// An optimizer in the place of one that was destroyed has gradients of its own.
TEST(LossScaling, ForgetsOptimizers) {
  train::LossScaling scaling({.init_scale = 8});
  std::optional<torch::optim::SGD> sgd;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor weight = torch::ones({2}).requires_grad_();
    sgd.emplace(std::vector<at::Tensor>{weight}, 1.0);
    scaling.add_optimizer(*sgd);
    scaling.scale((weight * 0.25).sum()).backward();
    scaling.unscale_all();
    EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 0.25)));
    scaling.clear();
  }
}

/// Each rank has a part of the gradients: here the first one's is zero.
TEST(GradScaler, LeavesOutStepsOnAllRanks) {
  testing::run_group(2, [](const ProcessGroup& group) {
    const double factor = group.rank();
    const at::Tensor weight = torch::ones({2}).requires_grad_();
    torch::optim::SGD sgd({weight}, 1.0);
    optim::GradScaler scaler({.init_scale = 8}, group);
    scaler.scale((weight * factor).sum()).backward();
    scaler.unscale(sgd);
    scaler.scale((weight * factor).sum()).backward();
    EXPECT_THROWS(scaler.step(sgd), UsageError, "mixture");
    weight.mutable_grad().reset();
    scaler.scale((weight * factor).sum() * 0.5).backward();
    EXPECT_TRUE(scaler.step(sgd));
    scaler.update();
    EXPECT_TRUE(torch::equal(weight, torch::full({2}, 1 - factor / 2)));
  });
}

}  // namespace
}  // namespace lockstep
