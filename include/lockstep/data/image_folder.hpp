#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/data/image_filter.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep {

/// torchvision's RandomResizedCrop: a window with `scale` of the image's area and a `ratio` of width to
/// height, resized to `size`. Off without a size.
struct RandomResizedCropOptions {
  ImageSize size = {};
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
};

/// torchvision's ColorJitter: each factor is drawn from [max(0, 1 - x), 1 + x], the hue's shift from [-hue,
/// hue] (at most 0.5); the four are applied in a random order. 0: off.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
};

/// torchvision's RandomErasing: with this probability, a rectangle with `scale` of the area and a `ratio` of
/// height to width is set to `value`, in units of the result (after normalizing, 0 is the mean).
struct RandomErasingOptions {
  double probability = 0;
  std::array<double, 2> scale = {0.02, 0.33};
  std::array<double, 2> ratio = {0.3, 3.3};
  float value = 0;
};

/// What is done to each image, in this order. Resizing has antialiasing; everything except scaled_decoding
/// produces torchvision's bytes for Pillow images and the same draws.
struct ImageFolderOptions {
  /// Not with `resize` or `center_crop`.
  RandomResizedCropOptions random_resized_crop = {};
  /// Length of the shorter side after resizing; 0: no resizing.
  std::int64_t resize = 0;
  /// Height and width after resizing, whatever those of the image. Not with `resize`.
  ImageSize resize_to = {};
  /// Of all of these resizings.
  ImageFilter filter = ImageFilter::bilinear;
  /// A window in the center; pixels outside the image are black.
  ImageSize center_crop = {};
  /// Of an odd number of pixels that the crop leaves out, the smaller part is above and on the left, as in
  /// transformers' image processors; otherwise the even one, as in torchvision.
  bool center_rounds_down = false;
  ColorJitterOptions color_jitter = {};
  /// Probability of a horizontal flip, 0 to 1.
  double flip_probability = 0;
  /// Three numbers each, or none: see ImageTransformOptions.
  std::vector<float> mean = {};
  std::vector<float> std = {};
  /// Keep images uint8, which takes a quarter of the memory; normalize_images() converts them to float32 on
  /// the device.
  bool keep_bytes = false;
  RandomErasingOptions random_erasing = {};
  /// Decode JPEG files at 1/2, 1/4 or 1/8 of their size if the region is then still at least as large as the
  /// result: faster, but not the same pixels.
  bool scaled_decoding = false;
  /// Images that claim more are rejected before memory is allocated for them; Pillow's limit.
  std::int64_t max_pixels = 178'956'970;
  /// Replace an image that cannot be read by the next one that can; its row is not `valid`.
  bool skip_bad = false;
};

/// A folder with one folder of images per class, like torchvision's ImageFolder. Classes are sorted by name,
/// images by folder and name. Files with the extensions .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and
/// .webp are listed; JPEG and PNG can be decoded. Folders are searched recursively, following symbolic links.
///
///     const auto train = std::make_shared<ImageFolder>("imagenet/train", ImageFolderOptions{
///         .random_resized_crop = {.size = {224, 224}}, .flip_probability = 0.5});
///     DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 8});
///
/// Samples have "image", [3, height, width], float32 from 0 to 1 before normalization, or uint8; and "label",
/// int64. Files are read and decoded in the thread that asks for a batch: the loader's workers. Random draws
/// for an image depend only on its SampleContext::seed. *Local*; thread-safe.
class ImageFolder final : public Dataset {
 public:
  /// Lists the files without reading them. Throws UsageError for options out of range; DataError if there is
  /// no class folder, or one without images.
  explicit ImageFolder(const std::filesystem::path& root, ImageFolderOptions options = {});
  ~ImageFolder() override;

  std::int64_t size() const override;
  /// Throws DataError, naming the file, if it cannot be read or decoded (with `skip_bad`, if none can).
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// Throws DataError if images of different sizes do not fit into a batch because there is no crop.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;
  /// Made of the files' names and classes, not of their contents.
  std::string fingerprint() const override;

  /// The names of the classes; a label is an index into them.
  const std::vector<std::string>& classes() const noexcept;
  /// The path of image `index`.
  const std::filesystem::path& path(std::int64_t index) const;
  /// The images that `skip_bad` has skipped so far: index and error.
  std::vector<std::pair<std::int64_t, std::string>> bad_images() const;

 private:
  struct State;
  /// A batch of images of any size.
  Batch stacked(std::span<const std::int64_t> indices, std::span<const SampleContext> contexts) const;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
