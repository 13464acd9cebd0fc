// Communication hooks against PyTorch's own under Python's DDP: the same weights after every step.

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <optional>

#include "interop/python.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

constexpr int kRanks = 2, kSteps = 4;

using MakeHook = std::function<std::shared_ptr<CommHook>()>;

MakeHook power(PowerSgdOptions options) {
  options.start_iteration = 2;
  return [options] { return std::make_shared<PowerSgdHook>(options); };
}

template <class Hook, class... Arguments>
MakeHook hook(Arguments... arguments) {
  return [=] { return std::make_shared<Hook>(arguments...); };
}

struct Case {
  const char* name;
  MakeHook make;
};

std::vector<Case> cases() {
  const PowerSgdOptions start{.start_iteration = 2};
  return {
      {"none", nullptr},
      {"all_reduce", hook<AllReduceHook>()},
      {"fp16", hook<CompressHook>(at::kHalf)},
      {"bf16", hook<CompressHook>(at::kBFloat16)},
      {"power", power({.min_compression_rate = 1.0})},
      {"power_2",
       power({.matrix_approximation_rank = 2, .orthogonalization_epsilon = 1e-8, .random_seed = 7})},
      {"power_4", power({.matrix_approximation_rank = 4})},
      {"power_cold", power({.use_error_feedback = false, .warm_start = false})},
      {"power_shapes", power({.batch_tensors_with_same_shape = true})},
      {"power_fp16",
       [=] { return std::make_shared<CompressWrapper>(at::kHalf, std::make_shared<PowerSgdHook>(start)); }},
      {"power_batched", hook<BatchedPowerSgdHook>(PowerSgdOptions{.start_iteration = 2, .random_seed = 3})},
      {"quantized", hook<QuantizationHook>()},
      {"quantized_512", hook<QuantizationHook>(QuantizationOptions{.channel = 512})},
      {"local", hook<PostLocalSgdHook>(PostLocalSgdOptions{.start_iteration = 2})},
  };
}

torch::nn::Sequential net(const TensorMap& start) {
  torch::nn::Sequential result(torch::nn::Linear(24, 40), torch::nn::Tanh(), torch::nn::Linear(40, 40),
                               torch::nn::Tanh(), torch::nn::Linear(40, 12));
  const at::NoGradGuard no_grad;
  for (auto& entry : result->named_parameters()) entry.value().copy_(start.at("w." + entry.key()));
  return result;
}

void descend(torch::nn::Sequential& model) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.01);
}

/// The weights after each step, under the names that the Python side gives them.
TensorMap train(const ProcessGroup& group, const Case& test, const TensorMap& start) {
  auto model = net(start);
  DistributedDataParallel ddp(model, group, {.bucket_cap_mb = 0.01});
  if (test.make) ddp.register_comm_hook(test.make());
  PeriodicModelAverager averager(group, {.period = 2, .warmup_steps = 2});
  TensorMap weights;
  for (int step = 0; step < kSteps; ++step) {
    ddp.zero_grad();
    ddp(start.at("x." + std::to_string(group.rank()) + "." + std::to_string(step))).square().sum().backward();
    descend(model);
    if (test.name == std::string("local")) averager.average_parameters(model->parameters());
    for (const auto& entry : model->named_parameters()) {
      weights.emplace(test.name + ("." + std::to_string(step)) + "." + entry.key(),
                      entry.value().detach().clone());
    }
  }
  return weights;
}

/// The Python side runs once for all tests.
class HooksInteropJoin : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!python_.empty()) return;
    at::set_num_threads(1);
    const testing::TemporaryFolder folder;
    testing::run_python("hooks_peer.py", {folder.path().string()});
    start_ = load_file(folder / "start.safetensors").tensors;
    python_ = load_file(folder / "python.safetensors").tensors;
  }

  static inline TensorMap start_, python_;
};

class HooksInterop : public HooksInteropJoin, public ::testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, HooksInterop, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(HooksInterop, TheWeightsAreThoseOfPython) {
  std::vector<TensorMap> weights(kRanks);
  testing::run_group(kRanks, [&](const ProcessGroup& group) {
    weights.at(static_cast<std::size_t>(group.rank())) = train(group, GetParam(), start_);
  });
  ASSERT_EQ(weights[0].size(), 6U * kSteps);
  for (const auto& [name, tensor] : weights[0]) {
    EXPECT_TRUE(torch::equal(tensor, python_.at(name)))
        << name << " differs by up to " << (tensor - python_.at(name)).abs().max().item<double>();
    // Between averagings, local SGD's ranks go their own ways.
    if (GetParam().name != std::string("local")) {
      EXPECT_TRUE(torch::equal(tensor, weights[1].at(name))) << name << " differs between the ranks";
    }
  }
}

/// Rank 0 has half the batches.
TensorMap train_joined(const ProcessGroup& group, bool divide, const TensorMap& start) {
  auto layers = net(start);
  layers->push_back(torch::nn::BatchNorm1d(12));
  DistributedDataParallel ddp(layers, group, {.bucket_cap_mb = 0.01});
  const auto batches = [&] {
    for (int step = 0; step < (group.rank() == 0 ? kSteps / 2 : kSteps); ++step) {
      ddp.zero_grad();
      const at::Tensor& input = start.at("x." + std::to_string(group.rank()) + "." + std::to_string(step));
      ddp(input).pow(3).sum().backward();
      descend(layers);
    }
  };
  ddp.join(batches, {.divide_by_initial_world_size = divide});
  TensorMap result;
  for (const auto& entry : layers->named_parameters()) result.emplace(entry.key(), entry.value().detach());
  for (const auto& entry : layers->named_buffers()) result.emplace(entry.key(), entry.value());
  return result;
}

/// Python keeps the layers one level deeper, except for the last, which it numbers 1.
std::string name_in_python(const std::string& name) {
  return name.starts_with("5.") ? "1" + name.substr(1) : "0." + name;
}

TEST_F(HooksInteropJoin, UnevenBatchesEndWithTheWeightsOfPython) {
  for (const bool divide : {true, false}) {
    std::vector<TensorMap> found(kRanks);
    testing::run_group(kRanks, [&](const ProcessGroup& group) {
      found.at(static_cast<std::size_t>(group.rank())) = train_joined(group, divide, start_);
    });
    for (const auto& [name, tensor] : found[0]) {
      const auto& theirs = python_.at((divide ? "join." : "join_active.") + name_in_python(name));
      EXPECT_TRUE(torch::equal(tensor, theirs)) << name << ", divide " << divide;
      EXPECT_TRUE(torch::equal(tensor, found[1].at(name))) << name << " differs between the ranks";
    }
  }
}

}  // namespace
}  // namespace lockstep
