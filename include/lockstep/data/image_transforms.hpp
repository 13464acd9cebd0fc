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
  /// [channels, height, width], like torchvision's tensors.
  chw,
  /// [height, width, channels], like the images of decoders and NumPy.
  hwc,
};

/// Height and width in pixels; 0 and 0: none.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// What is done to an image, in this order. The defaults only convert bytes to floating point.
struct ImageTransformOptions {
  /// Layout of the input. The output is always [rows, channels, height, width].
  ImageLayout layout = ImageLayout::chw;
  /// Bilinear with antialiasing, like torchvision's `resize` of a tensor.
  ImageSize resize = {};
  /// A window of this size at a random position, like torchvision's RandomCrop. Required with `padding`.
  ImageSize crop = {};
  /// Pixels of value 0 added on each side before the crop.
  std::int64_t padding = 0;
  /// Probability of a horizontal flip, 0 to 1.
  double flip_probability = 0;
  /// Mean and standard deviation per channel, or empty: (x - mean) / std, in units of the values after bytes
  /// have been divided by 255.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

/// Transforms images for training, in one pass over the memory.
///
/// Bytes become float32 in [0, 1]; float32 stays as it is; then (x - mean) / std. For the same window and
/// flip, the result has the bits of torchvision's (pad, crop, hflip, ToTensor or `to(float32).div(255)`,
/// Normalize). Random draws for an image depend only on its SampleContext::seed.
///
/// *Local*; thread-safe.
class ImageTransform {
 public:
  /// Throws UsageError for a size or padding out of range, padding without a crop, a probability out of 0 to
  /// 1, a `std` of 0, or a `mean` and a `std` of different lengths.
  explicit ImageTransform(ImageTransformOptions options);
  ~ImageTransform();
  ImageTransform(ImageTransform&&) noexcept;
  ImageTransform& operator=(ImageTransform&&) noexcept;

  /// `images`: uint8 or float32 on the CPU, [rows, ...] in the options' layout; one context per row. Returns
  /// contiguous float32, [rows, channels, height, width]. Throws UsageError for other tensors, a window
  /// larger than the padded image, or a number of channels other than the length of `mean`.
  at::Tensor operator()(const at::Tensor& images, std::span<const SampleContext> contexts) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// A data set that applies a function to each batch, in the loader's workers:
///
///     const auto crops = transformed(images, "image",
///                                    {.crop = {32, 32}, .padding = 4, .flip_probability = 0.5});
///     DataLoader loader(crops, {.batch_size = 128, .shuffle = true, .num_workers = 4});
class TransformedDataset final : public Dataset {
 public:
  /// Transforms a batch; row i was read with contexts[i]. Called by several threads at once.
  using Function = std::function<Batch(Batch batch, std::span<const SampleContext> contexts)>;

  /// Shares `dataset`. Throws UsageError if it or the function is null.
  TransformedDataset(std::shared_ptr<const Dataset> dataset, Function function);

  std::int64_t size() const override { return dataset_->size(); }
  /// One sample: the function gets a batch of one row.
  Example get(std::int64_t index, const SampleContext& context) const override;
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;
  /// The fingerprint of the underlying data set.
  std::string fingerprint() const override { return dataset_->fingerprint(); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  Function function_;
};

/// `dataset` with the tensor called `name` transformed. *Local*. Throws UsageError as ImageTransform does.
std::shared_ptr<const Dataset> transformed(std::shared_ptr<const Dataset> dataset, const std::string& name,
                                           ImageTransformOptions options);

/// Converts `images`, uint8 [rows, channels, height, width], to float32 on their device: x / 255, then (x -
/// mean) / std with one number per channel, or none. *Local*. Throws UsageError for other tensors or another
/// number of means or stds.
at::Tensor normalize_images(const at::Tensor& images, const std::vector<float>& mean,
                            const std::vector<float>& std);

/// How the images of a batch are mixed. If both are set, each batch uses one of them, with equal probability.
struct MixOptions {
  /// torchvision's MixUp: the weighted mean of two images, with a weight from Beta(alpha, alpha). 0: off.
  double mixup_alpha = 0;
  /// torchvision's CutMix: pastes a rectangle of one image into another. 0: off.
  double cutmix_alpha = 0;
  /// Number of classes. Labels become float32 [rows, classes].
  std::int64_t classes = 0;
};

/// Mixes each row with the row before it (the first with the last): "image", and "label", int64 [rows], which
/// becomes probabilities. Random draws depend only on `seed`. *Local*. Throws UsageError for options out of
/// range, images without four dimensions, labels of another shape or dtype, and mixup of a batch that is not
/// in floating point; DataError for a label that is not a class.
Batch mix_batch(Batch batch, const MixOptions& options, std::uint64_t seed);

/// `dataset` with its batches mixed by mix_batch(), in the loader's workers, with the seed of their first
/// row.
std::shared_ptr<const Dataset> mixed(std::shared_ptr<const Dataset> dataset, MixOptions options);

}  // namespace lockstep
