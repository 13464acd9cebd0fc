#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/data/image_folder.hpp"
#include "options.hpp"
#include "transforms.hpp"

/// Labelled images, and their disjoint parts.
struct Images {
  std::shared_ptr<const lockstep::Dataset> train;
  std::shared_ptr<const lockstep::Dataset> validation;
  std::shared_ptr<const lockstep::Dataset> test;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
  /// Of the images to train on; empty where they are not normalized.
  ChannelStatistics statistics = {};
  /// Where the images lie in files of their own: what the loaders' workers read.
  std::vector<std::shared_ptr<const lockstep::ImageFolder>> folders = {};
};

/// What a model gets of a batch's "image": bytes become floating point and are normalized on their device.
at::Tensor model_input(const Images& images, const at::Tensor& batch);

/// Reads the folder that the options name, or lists it where it has folders of classes (see
/// class_folders.hpp), and splits it by their seed: the same parts on every rank. Samples have "image",
/// floating point [channels, height, width], and "label", an integer from 0 to classes - 1. Pixels are from 0
/// to 1 before they are normalized; only the images to train on are augmented. Throws UsageError when there
/// is no such folder or a part would be empty, DataError for files that do not fit.
Images load_images(const Options& options);
