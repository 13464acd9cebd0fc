// DistributedDataParallel goes on when its group is formed again after a backward that failed.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

/// Several buckets with the options below.
struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    for (int i = 0; i < 4; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(40, 40)));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).sin().view_as(parameter));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::tanh(layer(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Deep);

DistributedDataParallelOptions small_buckets(bool views) {
  return {.bucket_cap_mb = 0.005, .gradient_as_bucket_view = views};
}

at::Tensor input_of(const ProcessGroup& group, int step) {
  return torch::arange(80).mul(0.1 * (group.rank() + 1) + step).cos().view({2, 40});
}

/// The gradients after the backward of a step.
std::vector<at::Tensor> gradients_of(DistributedDataParallel<Deep>& ddp, int step) {
  ddp.zero_grad();
  ddp(input_of(ddp.process_group(), step)).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const auto& entry : ddp.parameters()) gradients.push_back(entry.tensor.grad().clone());
  return gradients;
}

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

class DdpReform : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(GradientsAs, DdpReform, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "views" : "copies"; });

/// The first and the later backwards have other buckets; each of them fails once.
TEST_P(DdpReform, BackwardsAfterAFailedOneHaveTheBitsOfAnUndisturbedRun) {
  run_group(2, [](const ProcessGroup& group) {
    DistributedDataParallel<Deep> undisturbed(Deep(), group, small_buckets(GetParam()));
    DistributedDataParallel<Deep> ddp(Deep(), group, small_buckets(GetParam()));
    for (int step = 0; step < 3; ++step) {
      const auto wanted = gradients_of(undisturbed, step);
      const auto before = ddp.bucket_layout();
      const at::Tensor output = ddp(input_of(group, step)).sum();
      if (group.rank() == 1) group.abort("a link is down");
      EXPECT_THROW(output.backward(), CommunicationError);
      group.reform();
      expect_same(gradients_of(ddp, step), wanted);
      expect_same(gradients_of(undisturbed, step), wanted);
      EXPECT_GT(ddp.bucket_layout().size(), step == 0 ? 1U : 0U);
      EXPECT_EQ(ddp.bucket_layout(), undisturbed.bucket_layout());
      EXPECT_EQ(before.empty(), false);
    }
  });
}

TEST(DdpReformed, RefusesTheBackwardOfAForwardBeforeIt) {
  run_group(2, [](const ProcessGroup& group) {
    DistributedDataParallel<Deep> ddp(Deep(), group);
    const at::Tensor before = ddp(input_of(group, 0)).sum();
    group.reform();
    EXPECT_THROWS(before.backward(), UsageError, "formed again between a forward and its backward");
    EXPECT_EQ(gradients_of(ddp, 0).size(), 8U);
  });
}

TEST(DdpReformed, RefusesToBeReformedInNoSync) {
  run_group(2, [](const ProcessGroup& group) {
    DistributedDataParallel<Deep> ddp(Deep(), group);
    const auto wanted = gradients_of(ddp, 0);
    {
      const auto guard = ddp.no_sync();
      EXPECT_THROWS(group.reform(), UsageError, "no_sync()");
    }
    group.reform();
    expect_same(gradients_of(ddp, 0), wanted);
  });
}

TEST(DdpReformed, KeepsItsHook) {
  run_group(2, [](const ProcessGroup& group) {
    DistributedDataParallel<Deep> plain(Deep(), group), ddp(Deep(), group);
    ddp.register_comm_hook(std::make_shared<CompressHook>(at::kBFloat16));
    const auto wanted = gradients_of(ddp, 1);
    group.reform();
    expect_same(gradients_of(ddp, 1), wanted);
    EXPECT_FALSE(at::equal(gradients_of(plain, 1)[0], wanted[0]));
  });
}

}  // namespace
}  // namespace lockstep
