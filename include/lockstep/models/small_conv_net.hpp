#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::models {

struct SmallConvNetOptions {
  std::int64_t channels = 1;
  /// In pixels; both must be even.
  std::int64_t height = 8;
  std::int64_t width = 8;
  std::int64_t classes = 10;
};

/// A small convolutional network for small images: two 3x3 convolutions of 32 and 64 maps, 2x2 max pooling, a
/// hidden layer of 128. About 151,000 parameters for 8x8 images.
class SmallConvNetImpl : public torch::nn::Module {
 public:
  /// Throws UsageError unless all sizes are positive and height and width are even.
  explicit SmallConvNetImpl(const SmallConvNetOptions& options = {});

  /// `images` is floating point [rows, channels, height, width]; returns logits [rows, classes]. *Local*.
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(SmallConvNet);

}  // namespace lockstep::models
