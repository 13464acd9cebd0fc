#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep {

/// torchvision's RandomResizedCrop: a window of `scale` of the image's area and of a `ratio` of width to
/// height, resized to `size`. No size: none.
struct RandomResizedCropOptions {
  ImageSize size = {};
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
};

/// torchvision's ColorJitter: each factor is drawn from [max(0, 1 - x), 1 + x], the shift of the hue from
/// [-hue, hue] (at most 0.5), and the four are applied in a random order. 0: not at all.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
};

/// torchvision's RandomErasing: with this probability a rectangle of `scale` of the area and of a `ratio` of
/// height to width gets the `value`, in the units of what comes out (after normalizing, 0 is the mean).
struct RandomErasingOptions {
  double probability = 0;
  std::array<double, 2> scale = {0.02, 0.33};
  std::array<double, 2> ratio = {0.3, 3.3};
  float value = 0;
};

/// What is done to each image, in this order. Resizing is bilinear with antialiasing; all but the scaled
/// decoding gives the bytes that torchvision gives for images of Pillow and the same draws.
struct ImageFolderOptions {
  /// Not with `resize` or `center_crop`.
  RandomResizedCropOptions random_resized_crop = {};
  /// The shorter side becomes so long; 0: the image stays as it is.
  std::int64_t resize = 0;
  /// A window in the middle; what lies outside the image is black.
  ImageSize center_crop = {};
  ColorJitterOptions color_jitter = {};
  /// How likely the image is mirrored left to right: 0 to 1.
  double flip_probability = 0;
  /// Three numbers each, or none: see ImageTransformOptions.
  std::vector<float> mean = {};
  std::vector<float> std = {};
  /// Images stay uint8, a quarter of the memory: normalize_images() makes float32 of them on the device.
  bool keep_bytes = false;
  RandomErasingOptions random_erasing = {};
  /// JPEG files are decoded at 1/2, 1/4 or 1/8 of their size where a resize makes them smaller still: faster,
  /// and not the same pixels.
  bool scaled_decoding = false;
  /// Images that claim more are refused before memory is taken for them; Pillow's limit.
  std::int64_t max_pixels = 178'956'970;
  /// An image that cannot be read is replaced by the next one that can, and its row is not `valid`.
  bool skip_bad = false;
};

/// A folder with one folder of images for each class, as torchvision's ImageFolder: classes are sorted by
/// name, images by folder and name, and a file counts whose name ends in .jpg, .jpeg, .png, .ppm, .bmp, .pgm,
/// .tif, .tiff or .webp; JPEG and PNG can be decoded. Folders are searched at all depths, through links.
///
///     const auto train = std::make_shared<ImageFolder>("imagenet/train", ImageFolderOptions{
///         .random_resized_crop = {.size = {224, 224}}, .flip_probability = 0.5});
///     DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 8});
///
/// Samples have "image", [3, height, width], float32 from 0 to 1 before it is normalized, or uint8; and
/// "label", int64. Files are read and decoded by whoever asks for a batch: the loader's workers. What is
/// drawn for an image depends on its SampleContext::seed alone. *Local*; safe from several threads.
class ImageFolder final : public Dataset {
 public:
  /// Lists the files and reads none. Throws UsageError for options out of range; DataError where there is no
  /// folder of a class, or one without an image.
  explicit ImageFolder(const std::filesystem::path& root, ImageFolderOptions options = {});
  ~ImageFolder() override;

  std::int64_t size() const override;
  /// Throws DataError, naming the file, for one that cannot be read or decoded (with `skip_bad`, when none
  /// can).
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// Without a crop, images of different sizes do not fit into a batch: DataError.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;
  /// Of the files' names and their classes, not of what is in them.
  std::string fingerprint() const override;

  /// The names of the classes; a label is a place among them.
  const std::vector<std::string>& classes() const noexcept;
  /// Where the image numbered `index` lies.
  const std::filesystem::path& path(std::int64_t index) const;
  /// What was wrong with the images that `skip_bad` has passed over so far, by index.
  std::vector<std::pair<std::int64_t, std::string>> bad_images() const;

 private:
  struct State;
  /// A batch of images that may have any size.
  Batch stacked(std::span<const std::int64_t> indices, std::span<const SampleContext> contexts) const;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
