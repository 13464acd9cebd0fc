#include "lockstep/models/resnet.hpp"

#include <fmt/core.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <string>

#include "kernels/batch_norm.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Sequential;

Conv2d conv(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride = 1) {
  return Conv2d(torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// norm(states), + `residual` if that is defined, and relu of it if `relu`.
at::Tensor normalize(BatchNorm2d norm, const at::Tensor& states, const at::Tensor& residual = {},
                     bool relu = true) {
  if (norm->is_training() && norm->options.momentum()) {
    const kernels::BatchNorm tensors{.weight = norm->weight,
                                     .bias = norm->bias,
                                     .running_mean = norm->running_mean,
                                     .running_var = norm->running_var,
                                     .num_batches_tracked = norm->num_batches_tracked,
                                     .momentum = *norm->options.momentum(),
                                     .eps = norm->options.eps()};
    if (kernels::takes_batch_norm(tensors, states, residual, relu))
      return kernels::batch_norm(tensors, states, residual, relu);
  }
  at::Tensor result = norm(states);
  if (residual.defined()) result = result + residual;
  return relu ? torch::relu(result) : result;
}

/// Converts a block's input to the shape of its output.
Sequential downsample(std::int64_t from, std::int64_t to, std::int64_t stride) {
  return Sequential(conv(from, to, 1, stride), BatchNorm2d(to));
}

/// The branch beside a block.
at::Tensor shortcut_of(Sequential& downsample, const at::Tensor& x) {
  if (downsample.is_empty()) return x;
  const at::Tensor states = downsample->ptr<torch::nn::Conv2dImpl>(0)->forward(x);
  const auto norm = std::static_pointer_cast<torch::nn::BatchNorm2dImpl>(downsample->ptr(1));
  return normalize(BatchNorm2d(norm), states, {}, /*relu=*/false);
}

class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlockImpl(std::int64_t from, std::int64_t width, std::int64_t stride, Sequential shortcut) {
    conv1_ = register_module("conv1", conv(from, width, 3, stride));
    bn1_ = register_module("bn1", BatchNorm2d(width));
    conv2_ = register_module("conv2", conv(width, width, 3));
    bn2_ = register_module("bn2", BatchNorm2d(width));
    if (!shortcut.is_empty()) shortcut_ = register_module("downsample", shortcut);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = normalize(bn1_, conv1_(x));
    return normalize(bn2_, conv2_(inner), shortcut_of(shortcut_, x));
  }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr};
  BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  Sequential shortcut_{nullptr};
};
TORCH_MODULE(BasicBlock);

class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t from, std::int64_t width, std::int64_t stride, Sequential shortcut) {
    conv1_ = register_module("conv1", conv(from, width, 1));
    bn1_ = register_module("bn1", BatchNorm2d(width));
    conv2_ = register_module("conv2", conv(width, width, 3, stride));
    bn2_ = register_module("bn2", BatchNorm2d(width));
    conv3_ = register_module("conv3", conv(width, width * kExpansion, 1));
    bn3_ = register_module("bn3", BatchNorm2d(width * kExpansion));
    if (!shortcut.is_empty()) shortcut_ = register_module("downsample", shortcut);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor inner = normalize(bn1_, conv1_(x));
    inner = normalize(bn2_, conv2_(inner));
    return normalize(bn3_, conv3_(inner), shortcut_of(shortcut_, x));
  }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  Sequential shortcut_{nullptr};
};
TORCH_MODULE(Bottleneck);

template <class Block>
Sequential blocks(std::int64_t& from, std::int64_t width, std::int64_t count, std::int64_t stride) {
  const std::int64_t to = width * Block::Impl::kExpansion;
  Sequential shortcut{nullptr};
  if (stride != 1 || from != to) shortcut = downsample(from, to, stride);
  Sequential all;
  all->push_back(Block(from, width, stride, shortcut));
  from = to;
  for (std::int64_t i = 1; i < count; ++i) all->push_back(Block(from, width, 1, Sequential{nullptr}));
  return all;
}

void check(const ResNetOptions& options) {
  const bool stages = std::all_of(options.layers.begin(), options.layers.end(), [](auto n) { return n > 0; });
  if (stages && options.num_classes > 0 && options.in_channels > 0) return;
  throw UsageError(
      fmt::format("ResNet needs blocks in every stage, classes and channels; got {} classes and {} channels",
                  options.num_classes, options.in_channels));
}

void initialize(torch::nn::Module& module) {
  if (auto* layer = module.as<torch::nn::Conv2dImpl>()) {
    torch::nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
  }
}

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options) : pools_first_(!options.small_images) {
  check(options);
  conv1_ = register_module("conv1", options.small_images ? conv(options.in_channels, width_, 3)
                                                         : conv(options.in_channels, width_, 7, 2));
  bn1_ = register_module("bn1", BatchNorm2d(width_));
  for (int i = 0; i < 4; ++i) {
    stages_[static_cast<std::size_t>(i)] = register_module(fmt::format("layer{}", i + 1), stage(options, i));
  }
  fc_ = register_module("fc", torch::nn::Linear(width_, options.num_classes));
  for (const auto& module : modules(false)) initialize(*module);
}

Sequential ResNetImpl::stage(const ResNetOptions& options, int number) {
  const std::int64_t width = std::int64_t{64} << number;
  const std::int64_t count = options.layers[static_cast<std::size_t>(number)];
  const std::int64_t stride = number == 0 ? 1 : 2;
  return options.bottleneck ? blocks<Bottleneck>(width_, width, count, stride)
                            : blocks<BasicBlock>(width_, width, count, stride);
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = normalize(bn1_, conv1_(images));
  if (pools_first_) x = torch::max_pool2d(x, 3, 2, 1);
  for (auto& part : stages_) x = part->forward(x);
  return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep::models
