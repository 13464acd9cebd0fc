#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "lockstep/data/image_filter.hpp"
#include "lockstep/data/image_folder.hpp"
#include "lockstep/data/image_transforms.hpp"
#include "options.hpp"
#include "transforms.hpp"

/// How the model of a folder wants its images: the parts of its preprocessor_config.json that this program
/// uses.
struct ModelImages {
  /// The size of the results; {0, 0} if it depends on the image.
  lockstep::ImageSize size = {};
  /// Whether images are neither resized nor cropped.
  bool keeps_size = false;
  lockstep::ImageFilter filter = lockstep::ImageFilter::bilinear;
  ChannelStatistics statistics = {};
  /// The steps of an evaluation for images in files.
  lockstep::ImageFolderOptions evaluation = {};
  /// The same for images in memory, bytes [rows, channels, height, width].
  std::function<at::Tensor(const at::Tensor& images)> resize;
  /// Writes the file into a folder.
  std::function<void(const std::filesystem::path& folder)> save;
};

/// At the size of --resize if that is given; none for models that are no folder. Throws DataError for a
/// folder without preprocessor_config.json, and for one that is wrong.
std::optional<ModelImages> model_images(const Options& options);
