#include "lockstep/parallel/data_parallel.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim.h>

#include <map>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

const DataParallelOptions kThree = {.devices = {3, at::Device(at::kCPU)}};

/// Whole numbers, so that sums have the same bits in any order.
at::Tensor whole(at::IntArrayRef sizes) { return at::randint(-4, 5, sizes).to(at::kFloat); }

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  const at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.copy_(whole(parameter.sizes()));
  return net;
}

torch::nn::Sequential twin_of(torch::nn::Sequential& net) { return parallel::copy_module(net, at::kCPU); }

void expect_same_gradients(torch::nn::Sequential& one, torch::nn::Sequential& other) {
  const auto others = other->named_parameters();
  for (const auto& entry : one->named_parameters())
    EXPECT_TRUE(torch::equal(entry.value().grad(), others[entry.key()].grad())) << entry.key();
}

TEST(Scatter, ChunksFollowTorchChunk) {
  const std::vector<at::Device> four(4, at::kCPU);
  const auto sizes = [&](std::int64_t rows) {
    std::vector<std::int64_t> result;
    for (const auto& chunk : parallel::scatter(at::zeros({rows, 2}), four)) result.push_back(chunk.size(0));
    return result;
  };
  EXPECT_EQ(sizes(8), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(sizes(5), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(sizes(2), (std::vector<std::int64_t>{1, 1}));
  EXPECT_THROWS(parallel::scatter(at::scalar_tensor(1), four), UsageError, "dimension 0");
  EXPECT_THROWS(parallel::scatter(std::vector{at::zeros(4), at::zeros(2)}, four), UsageError, "4 chunks",
                "2");
}

TEST(Scatter, CollectionsAreCutAndPutTogether) {
  const std::vector<at::Device> two(2, at::kCPU);
  using Value = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, int, std::optional<at::Tensor>>;
  const Value value{at::arange(6), {{"x", at::arange(6) * 2}}, 7, std::nullopt};
  auto parts = parallel::scatter(value, two);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(torch::equal(std::get<0>(parts[1]), at::arange(3, 6)));
  EXPECT_TRUE(torch::equal(std::get<1>(parts[1]).at("x"), at::arange(3, 6) * 2));
  EXPECT_EQ(std::get<2>(parts[1]), 7);
  const auto joined = parallel::gather(parts, at::Device(at::kCPU));
  EXPECT_TRUE(torch::equal(std::get<0>(joined), at::arange(6)));
  EXPECT_TRUE(torch::equal(std::get<1>(joined).at("x"), at::arange(6) * 2));
  EXPECT_EQ(parallel::scatter(std::tuple(1, 2.0), two).size(), 2u)
      << "without tensors a part for each device";
  EXPECT_THROWS(parallel::gather({at::zeros({}), at::zeros({1})}, at::kCPU), UsageError, "scalars");
}

TEST(DataParallel, OutputsAndGradientsAreThoseOfOneDevice) {
  for (const std::int64_t rows : {7, 3, 2, 1}) {
    auto net = small_net();
    auto alone = twin_of(net);
    DataParallel<torch::nn::Sequential> model(net, kThree);
    for (int step = 0; step < 2; ++step) {  // The second one adds to the gradients of the first.
      const at::Tensor input = whole({rows, 4}).requires_grad_();
      const at::Tensor same = input.detach().clone().requires_grad_();
      const at::Tensor output = model(input), expected = alone->forward(same);
      EXPECT_TRUE(torch::equal(output, expected));
      output.sum().backward();
      expected.sum().backward();
      expect_same_gradients(net, alone);
      EXPECT_TRUE(torch::equal(input.grad(), same.grad()));
    }
  }
}

template <class Optimizer, class Options>
void expect_steps_to_reach_replicas(const Options& options) {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  DataParallel<torch::nn::Sequential> model(net, kThree);
  Optimizer optimizer(net->parameters(), options);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor input = whole({6, 4});
    const at::Tensor output = model(input);
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(torch::allclose(output, net->forward(input), 1e-4, 1e-5)) << "step " << step;
      EXPECT_FALSE(model(input).requires_grad());
    }
    optimizer.zero_grad();
    output.square().mean().backward();
    optimizer.step();
  }
}

TEST(DataParallel, ReplicasFollowTheSource) {
  expect_steps_to_reach_replicas<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  expect_steps_to_reach_replicas<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1));
  expect_steps_to_reach_replicas<optim::AdamW>(optim::AdamWOptions{.lr = 0.1});
}

TEST(DataParallel, OnlyWhatChangedIsCopied) {
  auto net = small_net();
  auto replicas = parallel::replicate(net, {at::kCPU, at::kCPU});
  const auto versions = [&] {
    std::vector<std::int64_t> result;
    for (const auto& parameter : replicas.ready(2)[1]->parameters()) result.push_back(parameter._version());
    return result;
  };
  auto before = versions();
  EXPECT_EQ(versions(), before) << "nothing changed";
  const at::NoGradGuard no_grad;
  net->parameters()[1].add_(1);
  ++before[1];
  EXPECT_EQ(versions(), before) << "one changed";
  replicas.forget();
  for (auto& version : before) ++version;
  EXPECT_EQ(versions(), before) << "all were forgotten";
}

TEST(DataParallel, BuffersAreThoseOfTheFirstDevice) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(2));
  auto alone = twin_of(net);
  DataParallel<torch::nn::Sequential> model(net, {.devices = {2, at::Device(at::kCPU)}});
  const at::Tensor input = at::randn({8, 2});
  for (int step = 0; step < 2; ++step) {
    model(input);
    alone->forward(input.narrow(0, 0, 4));
  }
  for (const auto& entry : net->named_buffers())
    EXPECT_TRUE(torch::equal(entry.value(), alone->named_buffers()[entry.key()])) << entry.key();
  model->eval();
  EXPECT_TRUE(torch::equal(model(input), net->forward(input))) << "all replicas evaluate with these buffers";
}

TEST(DataParallel, ModesAreFollowedPartByPart) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(0.9), torch::nn::Dropout(0.9));
  DataParallel<torch::nn::Sequential> model(net, kThree);
  net->train();
  net->children()[1]->eval();
  net->children()[2]->eval();
  {
    // A product of fewer rows may be rounded in another way, which counts for sums near zero.
    const torch::NoGradGuard no_grad;
    net->children()[0]->as<torch::nn::Linear>()->bias.fill_(10);
  }
  const at::Tensor input = whole({6, 4});
  EXPECT_TRUE(torch::allclose(model(input), net->forward(input))) << "no dropout in any replica";
}

/// Throws if it sees a negative number; otherwise returns its loss.
struct PickyImpl : torch::nn::Cloneable<PickyImpl> {
  PickyImpl() { PickyImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({1})); }
  at::Tensor forward(const at::Tensor& input) {
    if (input.lt(0).any().item<bool>()) throw std::out_of_range("a negative number");
    return (input * weight).mean();
  }
  at::Tensor weight;
};
TORCH_MODULE(Picky);

TEST(DataParallel, AnExceptionNamesItsReplica) {
  DataParallel<Picky> model(Picky(), kThree);
  try {
    model(at::tensor({1, 1, -1, 1, -1, 1}).to(at::kFloat));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_TRUE(testing::contains_all(error.what(), {"replica 1 on cpu", "a negative number"}));
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
  EXPECT_EQ(model(at::ones({6})).numel(), 3) << "it works again afterwards; a loss each is a vector";
}

TEST(DataParallel, LossesOfReplicasAreAVector) {
  Picky net;
  DataParallel<Picky> model(net, kThree);
  const at::Tensor losses = model(at::arange(6).to(at::kFloat));
  EXPECT_TRUE(torch::equal(losses, at::tensor({0.5f, 2.5f, 4.5f})));
  losses.mean().backward();
  EXPECT_TRUE(torch::allclose(net->weight.grad(), at::tensor({2.5f})));
}

/// Not cloneable, with one weight under two names and one that is not trained.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    one = register_parameter("one", at::full({1}, 3.0));
    other = register_parameter("other", one);
    frozen = register_parameter("frozen", at::full({1}, 2.0), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& input) { return input * one * other * frozen; }
  at::Tensor one, other, frozen;
};
TORCH_MODULE(Tied);

TEST(DataParallel, AFunctionMakesReplicasWhereCloneCannot) {
  EXPECT_THROWS(DataParallel<Tied>(Tied(), kThree), UsageError, "Cloneable", "function");
  Tied net;
  DataParallel<Tied> model(net, kThree, [] { return Tied(); });
  model(at::ones({6})).sum().backward();
  EXPECT_TRUE(torch::equal(net->one.grad(), at::full({1}, 72.0))) << "six times d(2 w w)/dw";
  EXPECT_FALSE(net->frozen.grad().defined());
  EXPECT_THROWS((DataParallel<torch::nn::Linear>(torch::nn::Linear(2, 2), kThree,
                                                 [] { return torch::nn::Linear(3, 2); })(at::ones({6, 2}))),
                UsageError, "replica 1", "'weight'");
}

TEST(DataParallel, SeveralForwardsBeforeOneBackward) {
  auto net = small_net();
  auto alone = twin_of(net);
  DataParallel<torch::nn::Sequential> model(net, kThree);
  const at::Tensor one = whole({6, 4}), other = whole({5, 4});
  (model(one).sum() + model(other).sum()).backward();
  (alone->forward(one).sum() + alone->forward(other).sum()).backward();
  expect_same_gradients(net, alone);
}

TEST(DataParallel, TorchScriptIsReplicatedToo) {
  torch::jit::Module script("Scale");
  script.register_parameter("weight", at::full({1}, 3.0).requires_grad_(), /*is_buffer=*/false);
  script.define(
      "def forward(self, x, y: int):\n  return {'out': x * self.weight + y, 'sum': (x * "
      "self.weight).sum()}\n");
  DataParallel<torch::jit::Module> model(script, kThree);
  const auto output = model(at::arange(6).to(at::kFloat), 1).toGenericDict();
  EXPECT_TRUE(torch::equal(output.at("out").toTensor(), at::arange(6) * 3.0f + 1));
  EXPECT_EQ(output.at("sum").toTensor().sizes(), at::IntArrayRef({3}));
  output.at("sum").toTensor().sum().backward();
  EXPECT_EQ(script.attr("weight").toTensor().grad().item<float>(), 15);
}

TEST(DataParallel, WithoutDevicesOneIsChosen) {
  DataParallel<torch::nn::Linear> model(torch::nn::Linear(2, 2));
  ASSERT_GE(model.options().devices.size(), 1u);
  EXPECT_EQ(*model.options().output_device, model.options().devices.front());
  EXPECT_THROWS(resolved({.devices = {at::kCPU, {at::kCUDA, 0}}}), UsageError, "cpu", "cuda:0");
}

}  // namespace
}  // namespace lockstep
