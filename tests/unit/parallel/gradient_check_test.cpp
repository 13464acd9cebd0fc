#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::Linear(3, 1));
}

/// A backward in which rank 1's gradient of the second layer's weight contains this number.
template <class Ddp>
void backward(Ddp& ddp, const ProcessGroup& group, float number) {
  at::Tensor weight = ddp->parameters()[2];
  const auto handle = weight.register_hook([&](const at::Tensor& gradient) {
    at::Tensor bad = gradient.clone();
    if (group.rank() == 1) bad[0][1] = number;
    return bad;
  });
  struct Unhook {
    at::Tensor& tensor;
    unsigned handle;
    ~Unhook() { tensor.remove_hook(handle); }
  } unhook{weight, handle};
  ddp(torch::ones({2, 3})).sum().backward();
}

TEST(NonFiniteGradients, AreAnErrorOnEveryRankThatNamesTheCause) {
  run_group(3, [&](const ProcessGroup& group) {
    auto model = net();
    DistributedDataParallel ddp(model, group, {.non_finite_gradients = NonFiniteGradients::error});
    backward(ddp, group, 1);
    for (const float number : {kInfinity, -kInfinity, std::nanf("")}) {
      ddp.zero_grad();
      EXPECT_THROWS(backward(ddp, group, number), Error, "rank " + std::to_string(group.rank()) + " of 3",
                    "the gradient of '1.weight' on rank 1 is not finite (NaN or infinity) in backward ");
    }
    ddp.zero_grad();
    backward(ddp, group, 1);  // Training can continue.
    EXPECT_TRUE(model->parameters()[2].grad().isfinite().all().item<bool>());
  });
}

TEST(NonFiniteGradients, AreSkippedOnEveryRank) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const bool view : {false, true}) {
      auto model = net();
      DistributedDataParallel ddp(
          model, group, {.gradient_as_bucket_view = view, .non_finite_gradients = NonFiniteGradients::skip});
      for (const bool bad : {false, true, false}) {
        backward(ddp, group, bad ? kInfinity : 1);
        for (const auto& parameter : model->parameters()) EXPECT_EQ(parameter.grad().defined(), !bad);
        ddp.zero_grad();
      }
    }
  });
}

TEST(NonFiniteGradients, LargeOnesAreFinite) {
  run_group(2, [&](const ProcessGroup& group) {
    auto model = net();
    DistributedDataParallel ddp(model, group, {.non_finite_gradients = NonFiniteGradients::error});
    at::Tensor weight = model->parameters()[0];
    weight.register_hook([](const at::Tensor& gradient) { return torch::full_like(gradient, 3e38); });
    EXPECT_NO_THROW(ddp(torch::ones({2, 3})).sum().backward());  // Their sum is infinite.
  });
}

/// The check replaces the reducer's own averaging: the gradients must be the same.
TEST(NonFiniteGradients, LookingChangesNoBit) {
  run_group(3, [&](const ProcessGroup& group) {
    for (const bool view : {false, true}) {
      auto one = net(), other = net();
      DistributedDataParallel plain(one, group, {.gradient_as_bucket_view = view});
      DistributedDataParallel checked(
          other, group, {.gradient_as_bucket_view = view, .non_finite_gradients = NonFiniteGradients::warn});
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 4; ++i) other->parameters()[i].copy_(one->parameters()[i]);
      for (int step = 0; step < 4; ++step) {
        const at::AutoGradMode with_gradients(true);
        const at::Tensor input = torch::randn({5, 3});
        plain(input).square().sum().backward();
        checked(input).square().sum().backward();
        for (std::size_t i = 0; i < 4; ++i)
          EXPECT_TRUE(torch::equal(one->parameters()[i].grad(), other->parameters()[i].grad())) << step;
        plain.zero_grad(step < 1);
        checked.zero_grad(step < 1);
      }
    }
  });
}

TEST(NonFiniteGradients, AreSeenBeforeAHookHidesThem) {
  run_group(2, [&](const ProcessGroup& group) {
    auto model = net();
    DistributedDataParallel ddp(model, group, {.non_finite_gradients = NonFiniteGradients::error});
    ddp.register_comm_hook(std::make_shared<QuantizationHook>());
    EXPECT_THROWS(backward(ddp, group, kInfinity), Error, "'1.weight' on rank 1");
  });
}

}  // namespace
}  // namespace lockstep
