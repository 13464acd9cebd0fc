#include "golden_cases.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/utils.h>

#include <cmath>

namespace lockstep::golden {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSplitRows = 32;
constexpr std::int64_t kRowsOfARank = 8;

/// Modules are made one after the other, not as arguments of one call, whose order C++ leaves open: each
/// draws its first weights from the generator.
nn::Sequential layers(Net net) {
  nn::Sequential result;
  if (net == Net::cnn) {
    result->push_back(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)));
    result->push_back(nn::ReLU());
    result->push_back(nn::Conv2d(4, 8, 3));
    result->push_back(nn::MaxPool2d(2));
    result->push_back(nn::Flatten());
    result->push_back(nn::Linear(72, 10));
    return result;
  }
  result->push_back(nn::Linear(16, 32));
  if (net == Net::batch_norm) result->push_back(nn::BatchNorm1d(32));
  result->push_back(nn::ReLU());
  result->push_back(nn::Linear(32, 10));
  return result;
}

/// Each parameter becomes -2 -1 0 1 2 -2 ..., every one from another start.
void fill_with_whole_numbers(nn::Module& net) {
  const at::NoGradGuard no_grad;
  std::int64_t start = 0;
  for (const auto& parameter : net.parameters()) {
    parameter.copy_(((torch::arange(parameter.numel()) + start++).remainder(5) - 2).view(parameter.sizes()));
  }
}

/// Whole multiples of `step` from -most to most: exact in any order of computing.
at::Tensor grid(double most, double step, at::IntArrayRef sizes) {
  const std::int64_t count = std::llround(most / step);
  return torch::randint(-count, count + 1, sizes, torch::kLong).to(torch::kFloat) * step;
}

Batch draw(Task task, at::IntArrayRef sizes, std::int64_t rows) {
  // One after the other: the order in which the generator is used is part of the recipe.
  if (task == Task::cross_entropy) {
    const at::Tensor inputs = torch::randn(sizes);
    return {inputs, torch::randint(0, 10, {rows}, torch::kLong)};
  }
  const bool whole = task == Task::whole;
  const at::Tensor inputs = whole ? grid(3.0, 1.0, sizes) : grid(1.0, 0.125, sizes);
  return {inputs, whole ? grid(2.0, 1.0, {rows, 10}) : grid(1.0, 0.25, {rows, 10})};
}

}  // namespace

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all{
      {"mlp", {.momentum = 0.9}},
      {"cnn", {.net = Net::cnn}},
      {"bucket_view", {.net = Net::cnn, .momentum = 0.9, .ddp = {.gradient_as_bucket_view = true}}},
      {"tiny_buckets", {.task = Task::cross_entropy, .ddp = {.bucket_cap_mb = 0.0005}}},
      {"static_graph", {.task = Task::cross_entropy, .ddp = {.static_graph = true}}},
      {"no_sync", {.momentum = 0.9, .micro_batches = 2}},
      {"batch_norm", {.net = Net::batch_norm, .task = Task::cross_entropy}},
      {"split", {.task = Task::cross_entropy, .steps = 2, .split = true}},
      // A learning rate of 0 keeps the weights whole.
      {"split_exact", {.task = Task::whole, .learning_rate = 0.0, .steps = 2, .split = true}},
      {"script_mlp", {.net = Net::batch_norm, .task = Task::cross_entropy, .steps = 5, .scripted = true}},
      {"script_cnn", {.net = Net::cnn, .task = Task::cross_entropy, .steps = 5, .scripted = true}},
      {"script_unused",
       {.net = Net::heads,
        .steps = 5,
        .scripted = true,
        .interpreted = true,
        .ddp = {.find_unused_parameters = true}}},
  };
  return all;
}

nn::Sequential make_net(const Case& golden_case) {
  torch::manual_seed(7);
  nn::Sequential net = layers(golden_case.net);
  if (golden_case.task == Task::whole) fill_with_whole_numbers(*net);
  return net;
}

Batch batch_of(const Case& golden_case, int step, int rank, int world) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + (golden_case.split ? 0 : rank)));
  const std::int64_t rows = golden_case.split ? kSplitRows : kRowsOfARank;
  const std::vector<std::int64_t> sizes = golden_case.net == Net::cnn
                                              ? std::vector<std::int64_t>{rows, 1, 8, 8}
                                              : std::vector<std::int64_t>{rows, 16};
  const Batch all = draw(golden_case.task, sizes, rows);
  if (!golden_case.split) return all;
  const std::int64_t share = rows / world;
  return {all.inputs.narrow(0, rank * share, share), all.targets.narrow(0, rank * share, share)};
}

at::Tensor loss_of(const Case& golden_case, const at::Tensor& outputs, const at::Tensor& targets) {
  switch (golden_case.task) {
    case Task::cross_entropy:
      return nn::functional::cross_entropy(outputs, targets);
    case Task::mse:
      return nn::functional::mse_loss(outputs, targets);
    default:
      return (outputs * targets).sum() / outputs.size(0);
  }
}

}  // namespace lockstep::golden
