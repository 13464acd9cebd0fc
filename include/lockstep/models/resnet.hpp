#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>

namespace lockstep::models {

struct ResNetOptions {
  /// Blocks in each of the four stages.
  std::array<std::int64_t, 4> layers = {2, 2, 2, 2};
  /// Blocks of three convolutions (1x1, 3x3, 1x1) with four times the width, instead of two convolutions.
  bool bottleneck = false;
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
  /// For small images such as CIFAR's: the first convolution is 3x3 with stride 1, without pooling after it.
  /// All other names and shapes are unchanged.
  bool small_images = false;

  static ResNetOptions resnet18(std::int64_t num_classes = 1000) { return {.num_classes = num_classes}; }
  static ResNetOptions resnet50(std::int64_t num_classes = 1000) {
    return {.layers = {3, 4, 6, 3}, .bottleneck = true, .num_classes = num_classes};
  }
};

/// A residual network (He et al., 2016; in bottlenecks the 3x3 convolution has the stride) with the parameter
/// names of torchvision's ResNet: weights saved as safetensors can be loaded in both directions. New weights
/// are initialized as in torchvision: the same values for the same seed.
class ResNetImpl : public torch::nn::Module {
 public:
  /// Throws UsageError unless all sizes are positive.
  explicit ResNetImpl(const ResNetOptions& options = {});

  /// `images` is floating point [rows, in_channels, height, width]; returns logits [rows, num_classes].
  /// *Local*.
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Sequential stage(const ResNetOptions& options, int number);

  bool pools_first_;
  std::int64_t width_ = 64;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::array<torch::nn::Sequential, 4> stages_{nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace lockstep::models
