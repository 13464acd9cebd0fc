#include "lockstep/models/small_conv_net.hpp"

#include <fmt/core.h>

#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

constexpr std::int64_t kFirstMaps = 32;
constexpr std::int64_t kSecondMaps = 64;
constexpr std::int64_t kHidden = 128;

void check(const SmallConvNetOptions& options) {
  const bool positive =
      options.channels > 0 && options.height > 0 && options.width > 0 && options.classes > 0;
  if (positive && options.height % 2 == 0 && options.width % 2 == 0) return;
  throw UsageError(
      fmt::format("SmallConvNet needs positive sizes and an even height and width; got {} channels of {} x "
                  "{} pixels and {} classes",
                  options.channels, options.height, options.width, options.classes));
}

torch::nn::Conv2d same_size_conv(std::int64_t from, std::int64_t to) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
}

}  // namespace

SmallConvNetImpl::SmallConvNetImpl(const SmallConvNetOptions& options) {
  check(options);
  conv1_ = register_module("conv1", same_size_conv(options.channels, kFirstMaps));
  conv2_ = register_module("conv2", same_size_conv(kFirstMaps, kSecondMaps));
  const std::int64_t features = kSecondMaps * (options.height / 2) * (options.width / 2);
  hidden_ = register_module("hidden", torch::nn::Linear(features, kHidden));
  output_ = register_module("output", torch::nn::Linear(kHidden, options.classes));
}

at::Tensor SmallConvNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = torch::relu(conv1_(images));
  x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
  return output_(torch::relu(hidden_(x.flatten(1))));
}

}  // namespace lockstep::models
