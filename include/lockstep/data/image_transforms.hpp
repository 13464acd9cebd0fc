#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.hpp"

namespace lockstep {

/// The order of an image's dimensions.
enum class ImageLayout {
  /// [channels, height, width], as torchvision's tensors.
  chw,
  /// [height, width, channels], as decoders and NumPy arrays of images.
  hwc,
};

/// Height and width in pixels; 0 and 0: none.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// What is done to an image, in this order. The defaults do nothing but turn bytes into floating point.
struct ImageTransformOptions {
  /// How the images that come are laid out. What comes out is always [rows, channels, height, width].
  ImageLayout layout = ImageLayout::chw;
  /// Bilinear, with antialiasing, as torchvision's `resize` of a tensor.
  ImageSize resize = {};
  /// A window of this size at a random place, as torchvision's RandomCrop. Needed where `padding` is given.
  ImageSize crop = {};
  /// Pixels of 0 around the image before the window is chosen.
  std::int64_t padding = 0;
  /// How likely the image is mirrored left to right: 0 to 1.
  double flip_probability = 0;
  /// Subtracted from each channel, then divided by `std`; as many as there are channels, or none. In units of
  /// the values after bytes have been divided by 255.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

/// Transforms images for training, in one pass over the memory.
///
/// Bytes become float32 in [0, 1]; float32 stays as it is. Then (x - mean) / std. For the same window and
/// flip the bits are those of torchvision (pad, crop, hflip, ToTensor or `to(float32).div(255)`, Normalize).
/// What is drawn for an image depends on its SampleContext::seed alone.
///
/// *Local*; safe from several threads.
class ImageTransform {
 public:
  /// Throws UsageError for a size below 0, a probability out of 0 to 1, a `std` of 0, or a `mean` and a `std`
  /// of different lengths.
  explicit ImageTransform(ImageTransformOptions options);
  ~ImageTransform();
  ImageTransform(ImageTransform&&) noexcept;
  ImageTransform& operator=(ImageTransform&&) noexcept;

  /// `images`: uint8 or float32 on the CPU, [rows, ...] in the options' layout; a context for each row. The
  /// result is float32, [rows, channels, height, width], and contiguous. Throws UsageError for other tensors,
  /// a window larger than the padded image, and another number of channels than `mean` has.
  at::Tensor operator()(const at::Tensor& images, std::span<const SampleContext> contexts) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// A data set whose batches pass through a function before they are handed out, in the loader's workers:
///
///     const auto crops = transformed(images, "image", {.crop = {32, 32}, .padding = 4, .flip_probability =
///     0.5}); DataLoader loader(crops, {.batch_size = 128, .shuffle = true, .num_workers = 4});
class TransformedDataset final : public Dataset {
 public:
  /// Changes a batch; row i was read with contexts[i]. Called by several threads at once.
  using Function = std::function<Batch(Batch batch, std::span<const SampleContext> contexts)>;

  /// Shares `dataset`. Throws UsageError for no data set or no function.
  TransformedDataset(std::shared_ptr<const Dataset> dataset, Function function);

  std::int64_t size() const override { return dataset_->size(); }
  /// One row: the function sees a batch of it.
  Example get(std::int64_t index, const SampleContext& context) const override;
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;
  /// That of the data set inside.
  std::string fingerprint() const override { return dataset_->fingerprint(); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  Function function_;
};

/// `dataset` with the tensor called `name` transformed. *Local*. Throws UsageError as ImageTransform does.
std::shared_ptr<const Dataset> transformed(std::shared_ptr<const Dataset> dataset, const std::string& name,
                                           ImageTransformOptions options);

/// `images`, uint8 [rows, channels, height, width], as float32 on their device: x / 255, then (x - mean) /
/// std with a number for each channel, or none. *Local*. Throws UsageError for other tensors or numbers that
/// do not fit.
at::Tensor normalize_images(const at::Tensor& images, const std::vector<float>& mean,
                            const std::vector<float>& std);

/// Which images of a batch are mixed, and how much. With both, half of the batches are mixed by each.
struct MixOptions {
  /// torchvision's MixUp: the mean of two images, with a weight of Beta(alpha, alpha). 0: not.
  double mixup_alpha = 0;
  /// torchvision's CutMix: a rectangle of one image in another. 0: not.
  double cutmix_alpha = 0;
  /// Labels become float32 [rows, classes].
  std::int64_t classes = 0;
};

/// A batch whose rows are mixed with the row before each (the first with the last): "image", and "label" of
/// int64 [rows], which becomes one of probabilities. What is drawn depends on `seed` alone. *Local*. Throws
/// UsageError for options out of range, for images without four dimensions, and for a batch that is not in
/// floating point with mixup; DataError for a label that is no class.
Batch mix_batch(Batch batch, const MixOptions& options, std::uint64_t seed);

/// `dataset` with its batches mixed by mix_batch(), in the loader's workers and by the seed of their first
/// row.
std::shared_ptr<const Dataset> mixed(std::shared_ptr<const Dataset> dataset, MixOptions options);

}  // namespace lockstep
