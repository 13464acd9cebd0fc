#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/data/image_filter.hpp"
#include "lockstep/data/image_folder.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep::models {

/// The file beside a model's config.json that says how images are prepared for it: Hugging Face's name.
constexpr const char* kImageProcessorFileName = "preprocessor_config.json";

struct ImageProcessorOrigin;

/// How images are prepared for a model: the fields of transformers' image processors of ViT, DeiT, ConvNeXt
/// and DINOv2 (BitImageProcessor). Images are resized and cropped as by Pillow, whose bytes the slow
/// processors of Python have, too; its processors on tensors differ from these by at most 1 of 255.
///
///     const auto processor = models::ImageProcessorConfig::from_file("vit-base-patch16-224");
///     const auto test = std::make_shared<ImageFolder>("photos/test", processor.folder_options());
///     const at::Tensor pixels = models::process_images(processor, images);  // images in memory
struct ImageProcessorConfig {
  bool do_resize = true;
  /// Height and width after resizing; {0, 0} if shortest_edge counts.
  ImageSize size = {224, 224};
  /// Length of the shorter side after resizing.
  std::int64_t shortest_edge = 0;
  ImageFilter resample = ImageFilter::bilinear;
  bool do_center_crop = false;
  ImageSize crop_size = {224, 224};
  bool do_rescale = true;
  double rescale_factor = 1.0 / 255;
  bool do_normalize = true;
  std::array<float, 3> image_mean = {0.5F, 0.5F, 0.5F};
  std::array<float, 3> image_std = {0.5F, 0.5F, 0.5F};
  /// Of ConvNeXt, otherwise 0: below a shortest_edge of 384, the shorter side becomes shortest_edge /
  /// crop_pct, and the center of shortest_edge pixels is cut out; from 384 on, the image becomes a square of
  /// shortest_edge pixels.
  double crop_pct = 0;
  /// The file; set by from_file().
  std::shared_ptr<const ImageProcessorOrigin> origin = {};

  /// Reads `folder`/preprocessor_config.json, in the spelling of any version of transformers: sizes as a
  /// number, a list or an object; types with "FeatureExtractor" or "Fast". Missing fields have the defaults
  /// of their class in Python, which is that of the model if the file names none. Throws DataError, naming
  /// file and field, for a file that is missing, for values that are out of range, and for what is not
  /// implemented (padding, other types, resizing without a filter).
  static ImageProcessorConfig from_file(const std::filesystem::path& folder);
  /// The text of the file: that which was read, with the fields that changed since. Throws UsageError for a
  /// configuration that did not come from a file.
  std::string to_json() const;

  /// The size of the results. {0, 0} if it depends on the image.
  ImageSize result_size() const;
  /// Sets the size of the results to a square; what is cut off at the edges keeps its share. Throws
  /// UsageError unless `pixels` is positive.
  void set_result_size(std::int64_t pixels);

  /// What normalize_images() and ImageFolderOptions subtract and divide by: for values of bytes divided by
  /// 255, whatever rescale_factor is, and for processors that do not rescale or normalize as well.
  std::vector<float> mean() const;
  std::vector<float> std() const;

  /// These steps for the images of a folder.
  ImageFolderOptions folder_options() const;
};

/// `images`, uint8 [rows, channels, height, width] on the CPU with 1 or 3 channels, resized and cropped:
/// uint8 [rows, channels, height, width]. *Local*. Throws UsageError for other tensors.
at::Tensor resize_images(const ImageProcessorConfig& processor, const at::Tensor& images);

/// resize_images(), rescaled and normalized: float32 with 3 channels, all of which a gray image fills.
at::Tensor process_images(const ImageProcessorConfig& processor, const at::Tensor& images);

/// Writes `folder`/preprocessor_config.json, which appears complete or not at all. *Local*. Throws Error if
/// writing fails.
void save_image_processor(const ImageProcessorConfig& processor, const std::filesystem::path& folder);

}  // namespace lockstep::models
