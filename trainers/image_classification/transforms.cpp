#include "transforms.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <cmath>
#include <string>

#include "lockstep/core/error.hpp"

namespace {

constexpr double kFlipProbability = 0.5;

}  // namespace

ChannelStatistics channel_statistics(const at::Tensor& images, std::int64_t white) {
  constexpr std::int64_t kBytes = 256;
  const at::Tensor values = at::arange(kBytes, at::kDouble) / static_cast<double>(white);
  ChannelStatistics statistics;
  for (std::int64_t channel = 0; channel < images.size(1); ++channel) {
    const at::Tensor counts = at::bincount(images.select(1, channel).flatten(), {}, kBytes).to(at::kDouble);
    const at::Tensor shares = counts / counts.sum();
    const at::Tensor mean = (shares * values).sum();
    const double variance = (shares * (values - mean).square()).sum().item<double>();
    if (variance == 0) {
      throw lockstep::DataError(fmt::format(
          "--normalize: channel {} of the training images has the same value everywhere", channel));
    }
    statistics.mean.push_back(mean.item<float>());
    statistics.std.push_back(static_cast<float>(std::sqrt(variance)));
  }
  return statistics;
}

lockstep::ImageTransformOptions evaluation_transform(const Options& options,
                                                     const ChannelStatistics& statistics) {
  return {.resize = {options.resize, options.resize}, .mean = statistics.mean, .std = statistics.std};
}

lockstep::ImageTransformOptions training_transform(const Options& options,
                                                   const ChannelStatistics& statistics,
                                                   lockstep::ImageSize size) {
  auto transform = evaluation_transform(options, statistics);
  if (options.random_crop_padding > 0) {
    transform.crop = options.resize > 0 ? transform.resize : size;
    transform.padding = options.random_crop_padding;
  }
  if (options.horizontal_flip) transform.flip_probability = kFlipProbability;
  return transform;
}
