// Strides and ties that differ between the ranks.

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    body = register_module("body", torch::nn::Linear(3, 4));
    head = register_module("head", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(body(x))); }
  torch::nn::Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(TwoLayers);

at::Tensor points_of(int rank, int step = 0) {
  return torch::arange(12, at::kFloat).view({4, 3}).mul(0.3).add(rank * 2 + step).sin();
}

at::Tensor sum_of_ranks(const ProcessGroup& group, const at::Tensor& gradient) {
  at::Tensor sum = gradient.clone();
  group.all_reduce(sum);
  return sum;
}

at::Tensor in_columns(const at::Tensor& values) { return values.t().contiguous().t(); }

TEST(ParameterStrides, DifferentStridesAreNamedWithTheirRanks) {
  run_group(2, [&](const ProcessGroup& group) {
    TwoLayers net;
    if (group.rank() == 0) net->body->weight.set_data(in_columns(net->body->weight.detach()));
    EXPECT_THROWS(DistributedDataParallel(net, group), CommunicationError,
                  "'body.weight' is parameter Float [4, 3] strides [1, 4] with gradient on rank 0; parameter "
                  "Float [4, 3] with gradient on rank 1");
    net->body->weight.requires_grad_(false);
    const at::Tensor values = torch::arange(12, at::kFloat).view({4, 3});
    net->body->weight.copy_(group.rank() == 0 ? values : torch::zeros({4, 3}));
    DistributedDataParallel ddp(net, group);
    EXPECT_TRUE(torch::equal(net->body->weight, values)) << "frozen ones are only copied";
  });
}

TEST(ParameterStrides, EqualStridesAndExpandedBuffersTrain) {
  struct MaskedImpl : torch::nn::Module {
    MaskedImpl() {
      weight = register_parameter("weight", in_columns(torch::arange(12, at::kFloat).view({4, 3})));
      mask = register_buffer("mask", torch::ones({1}).expand({4}));
    }
    at::Tensor forward(const at::Tensor& x) { return (x.matmul(weight.t())) * mask; }
    at::Tensor weight, mask;
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto net = std::make_shared<MaskedImpl>();
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp(points_of(group.rank(), step)).square().sum().backward();
      EXPECT_TRUE(torch::equal(sum_of_ranks(group, net->weight.grad()), 2 * net->weight.grad()));
    }
    EXPECT_TRUE(torch::equal(net->mask, torch::ones({4})));
  });
}

TEST(ParameterStrides, TiesThatDifferAreNamed) {
  struct TiedImpl : torch::nn::Module {
    explicit TiedImpl(bool tied) {
      a = register_parameter("a", torch::ones({2}));
      b = register_parameter("b", tied ? a : torch::ones({2}));
    }
    at::Tensor forward(const at::Tensor& x) { return x * a * b; }
    at::Tensor a, b;
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto net = std::make_shared<TiedImpl>(group.rank() == 0);
    EXPECT_THROWS(DistributedDataParallel(net, group), CommunicationError, "tied to 'a' on rank 0");
  });
}

TEST(ParameterStrides, LocalSgdAveragesElementsWhateverTheirStrides) {
  run_group(2, [&](const ProcessGroup& group) {
    TwoLayers net;
    DistributedDataParallel ddp(net, group);
    LocalSgd local(ddp, 1);
    const at::Tensor values = torch::arange(12, at::kFloat).view({4, 3});
    net->body->weight.set_data(group.rank() == 0 ? in_columns(values) : values * 3);
    local.step();
    EXPECT_TRUE(torch::equal(net->body->weight.detach(), values * 2));
  });
}

}  // namespace
}  // namespace lockstep
