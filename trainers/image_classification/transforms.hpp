#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/data/image_transforms.hpp"
#include "options.hpp"

/// Mean and standard deviation of each channel's values, which are from 0 to 1.
struct ChannelStatistics {
  std::vector<float> mean;
  std::vector<float> std;
};

/// The statistics of each channel of `images`, uint8 [images, channels, height, width], whose values are
/// divided by `white`. Computed from counts of the bytes: the same bits on every rank. Throws DataError if a
/// channel has the same value everywhere.
ChannelStatistics channel_statistics(const at::Tensor& images, std::int64_t white);

/// The transforms of every image, and those of training images, which are also augmented; `size` is that of
/// the images in the files.
lockstep::ImageTransformOptions evaluation_transform(const Options& options,
                                                     const ChannelStatistics& statistics);
lockstep::ImageTransformOptions training_transform(const Options& options,
                                                   const ChannelStatistics& statistics,
                                                   lockstep::ImageSize size);
