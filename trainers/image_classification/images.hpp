#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/data/image_folder.hpp"
#include "model_images.hpp"
#include "options.hpp"
#include "transforms.hpp"

/// Labeled images, in disjoint parts.
struct Images {
  std::shared_ptr<const lockstep::Dataset> train;
  std::shared_ptr<const lockstep::Dataset> validation;
  std::shared_ptr<const lockstep::Dataset> test;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
  /// The names of the classes by number, if the data have names.
  std::vector<std::string> class_names = {};
  /// Of the training images, or those that the model was trained with; empty without normalization.
  ChannelStatistics statistics = {};
  /// Set if each image is a file: the data sets that the loaders' workers read.
  std::vector<std::shared_ptr<const lockstep::ImageFolder>> folders = {};
  /// How images are prepared, if the model is a folder that says so.
  std::optional<ModelImages> of_model = {};
};

/// The model's input for a batch's "image": bytes are converted to floating point and normalized on their
/// device.
at::Tensor model_input(const Images& images, const at::Tensor& batch);

/// Reads the folder that the options name, or lists it if it has a folder per class (see class_folders.hpp),
/// and splits it by their seed: the same parts on every rank. Samples have "image", floating point [channels,
/// height, width], and "label", an integer from 0 to classes - 1. Pixels are from 0 to 1 before
/// normalization; only training images are augmented. For a model that is a folder, images are prepared as
/// that says. Throws UsageError if the folder does not exist or a part would be empty, DataError for files
/// that do not match.
Images load_images(const Options& options);
