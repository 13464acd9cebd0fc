#include "lockstep/data/image_transforms.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include "data/transforms/image_kernels.hpp"
#include "data/transforms/image_size.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw UsageError("ImageTransform: " + text); }

void check_options(const ImageTransformOptions& options) {
  check_image_size("ImageTransform: resize", options.resize, 20);
  check_image_size("ImageTransform: crop", options.crop, 20);
  if (options.padding < 0 || options.padding > 1 << 20) {
    refuse(fmt::format("padding must be 0 to 2^20 pixels, but is {}.", options.padding));
  }
  if (options.padding > 0 && !is_given(options.crop)) refuse("padding needs a crop: name the window's size.");
  if (!(options.flip_probability >= 0 && options.flip_probability <= 1)) {
    refuse(fmt::format("flip_probability must be 0 to 1, but is {:f}.", options.flip_probability));
  }
  if (options.mean.size() != options.std.size()) {
    refuse(fmt::format("mean has {} numbers, but std has {}; each needs one for each channel.",
                       options.mean.size(), options.std.size()));
  }
  for (const auto value : options.std) {
    if (value == 0) refuse("std must not be 0.");
  }
}

void check_images(const at::Tensor& images, std::size_t contexts) {
  if (!images.defined() || images.dim() != 4 || !images.is_cpu() ||
      (images.scalar_type() != at::kByte && images.scalar_type() != at::kFloat)) {
    refuse(fmt::format(
        "expects uint8 or float32 images on the CPU, in four dimensions with the rows first, but got {}.",
        images.defined() ? fmt::format("{} of {} dimensions", images.toString(), images.dim())
                         : "an undefined tensor"));
  }
  if (static_cast<std::int64_t>(contexts) != images.size(0)) {
    refuse(fmt::format("got {} contexts for {} images.", contexts, images.size(0)));
  }
}

/// Resizes like torchvision for a tensor: bytes in floating point, then rounded back.
at::Tensor resized(const at::Tensor& images, const ImageSize& size) {
  // The kernel for channels last gives other values for a width of 1.
  const auto floats =
      at::_upsample_bilinear2d_aa(images.to(at::kFloat).contiguous(), {size.height, size.width},
                                  /*align_corners=*/false);
  return images.scalar_type() == at::kByte ? floats.round_().to(at::kByte) : floats;
}

ImageGeometry geometry_of(const at::Tensor& images, const ImageSize& crop) {
  ImageGeometry geometry{.channels = images.size(1),
                         .height = images.size(2),
                         .width = images.size(3),
                         .channel_stride = images.stride(1),
                         .row_stride = images.stride(2),
                         .column_stride = images.stride(3)};
  geometry.out_height = is_given(crop) ? crop.height : geometry.height;
  geometry.out_width = is_given(crop) ? crop.width : geometry.width;
  return geometry;
}

void check_geometry(const ImageGeometry& geometry, const ImageTransformOptions& options) {
  const auto border = 2 * options.padding;
  const bool high = geometry.out_height > geometry.height + border;
  const bool wide = geometry.out_width > geometry.width + border;
  if (high || wide) {
    refuse(fmt::format("a crop of {} does not fit into images of {} with a padding of {}.",
                       describe_size(options.crop), describe_size({geometry.height, geometry.width}),
                       options.padding));
  }
  const auto channels = static_cast<std::int64_t>(options.mean.size());
  if (channels != 0 && channels != geometry.channels) {
    refuse(fmt::format("mean and std have {} numbers, but the images have {} channels.", channels,
                       geometry.channels));
  }
}

/// Transforms image by image; the result is written once.
template <class Pixel>
void transform_rows(const at::Tensor& images, const at::Tensor& result, const ImageGeometry& geometry,
                    const ImageTransformOptions& options, const PixelScale& scale,
                    std::span<const SampleContext> contexts) {
  const auto* image = images.const_data_ptr<Pixel>();
  auto* out = result.mutable_data_ptr<float>();
  for (const auto& context : contexts) {
    const auto draw = draw_image(geometry, options.padding, options.flip_probability, context.seed);
    transform_image(image, out, geometry, draw, scale);
    image += images.stride(0);
    out += result.stride(0);
  }
}

}  // namespace

struct ImageTransform::Parts {
  ImageTransformOptions options;
  PixelScale scale;
};

ImageTransform::ImageTransform(ImageTransformOptions options) {
  check_options(options);
  PixelScale scale(options.mean, options.std);
  parts_ = std::make_unique<const Parts>(Parts{std::move(options), std::move(scale)});
}

ImageTransform::~ImageTransform() = default;
ImageTransform::ImageTransform(ImageTransform&&) noexcept = default;
ImageTransform& ImageTransform::operator=(ImageTransform&&) noexcept = default;

at::Tensor ImageTransform::operator()(const at::Tensor& images,
                                      std::span<const SampleContext> contexts) const {
  const auto& [options, scale] = *parts_;
  check_images(images, contexts.size());
  at::Tensor planes = options.layout == ImageLayout::hwc ? images.permute({0, 3, 1, 2}) : images;
  if (is_given(options.resize)) planes = resized(planes, options.resize);
  const auto geometry = geometry_of(planes, options.crop);
  check_geometry(geometry, options);
  at::Tensor result =
      at::empty({planes.size(0), geometry.channels, geometry.out_height, geometry.out_width}, at::kFloat);
  if (planes.scalar_type() == at::kByte) {
    transform_rows<std::uint8_t>(planes, result, geometry, options, scale, contexts);
  } else {
    transform_rows<float>(planes, result, geometry, options, scale, contexts);
  }
  return result;
}

TransformedDataset::TransformedDataset(std::shared_ptr<const Dataset> dataset, Function function)
    : dataset_(std::move(dataset)), function_(std::move(function)) {
  if (!dataset_) throw UsageError("TransformedDataset was given no data set.");
  if (!function_) throw UsageError("TransformedDataset was given no function.");
}

Example TransformedDataset::get(std::int64_t index, const SampleContext& context) const {
  const Batch one = get_batch(std::span(&index, 1), std::span(&context, 1));
  Example example;
  for (const auto& [name, tensor] : one.items()) example.insert(name, tensor.select(0, 0));
  for (const auto& [name, texts] : one.text_items()) example.set_texts(name, texts);
  example.valid = one.valid;
  return example;
}

Batch TransformedDataset::get_batch(std::span<const std::int64_t> indices,
                                    std::span<const SampleContext> contexts) const {
  Batch read = dataset_->get_batch(indices, contexts);
  auto valid = read.valid;
  Batch batch = function_(std::move(read), contexts);
  batch.indices.assign(indices.begin(), indices.end());
  if (batch.valid.empty()) batch.valid = std::move(valid);
  return batch;
}

std::shared_ptr<const Dataset> transformed(std::shared_ptr<const Dataset> dataset, const std::string& name,
                                           ImageTransformOptions options) {
  const auto transform = std::make_shared<const ImageTransform>(std::move(options));
  return std::make_shared<const TransformedDataset>(
      std::move(dataset), [name, transform](Batch batch, std::span<const SampleContext> contexts) {
        batch.set(name, (*transform)(batch[name], contexts));
        return batch;
      });
}

at::Tensor normalize_images(const at::Tensor& images, const std::vector<float>& mean,
                            const std::vector<float>& std) {
  if (!images.defined() || images.dim() != 4 || images.scalar_type() != at::kByte ||
      mean.size() != std.size() ||
      (!mean.empty() && static_cast<std::int64_t>(mean.size()) != images.size(1)))
    throw UsageError(
        "normalize_images: expects uint8 [rows, channels, height, width], with a mean and a std for each "
        "channel or none.");
  const auto by_channel = [&](const std::vector<float>& values) {
    return at::tensor(values).view({1, -1, 1, 1}).to(images.device(), /*non_blocking=*/true);
  };
  auto result = images.to(at::kFloat).div_(255);
  if (!mean.empty()) result.sub_(by_channel(mean)).div_(by_channel(std));
  return result;
}

}  // namespace lockstep
