#include "lockstep/models/image_processor.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/images/resample.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "models/image_processor_file.hpp"

namespace lockstep::models {
namespace {

using images::kPixelBytes;
using images::Pixels;

/// From this size on, ConvNeXt's images are squeezed into a square instead of cropped.
constexpr std::int64_t kSqueezedEdge = 384;

/// What is done to the pixels of an image, whatever the type of the processor.
struct Steps {
  std::int64_t shortest_edge = 0;
  ImageSize size = {};
  ImageSize crop = {};
};

bool has_size(const ImageSize& size) { return size.height > 0; }

Steps steps_of(const ImageProcessorConfig& config) {
  Steps steps;
  if (config.do_resize && config.crop_pct > 0) {
    const std::int64_t edge = config.shortest_edge;
    if (edge < kSqueezedEdge) {
      steps.shortest_edge = static_cast<std::int64_t>(static_cast<double>(edge) / config.crop_pct);
      steps.crop = {edge, edge};
    } else {
      steps.size = {edge, edge};
    }
  } else if (config.do_resize) {
    steps.shortest_edge = config.shortest_edge;
    steps.size = config.size;
  }
  if (config.do_center_crop) steps.crop = config.crop_size;
  return steps;
}

/// Planes of bytes as Pillow's pixels.
Pixels pixels_of(const at::Tensor& image) {
  const auto channels = std::min<std::int64_t>(image.size(0), 3);
  Pixels pixels(static_cast<int>(image.size(2)), static_cast<int>(image.size(1)));
  std::fill_n(pixels.data.get(), pixels.stride() * pixels.height, std::uint8_t{0});
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const auto* plane = image.const_data_ptr<std::uint8_t>() + channel * image.stride(0);
    for (std::int64_t i = 0; i < image.size(1) * image.size(2); ++i)
      pixels.data[static_cast<std::size_t>(i * kPixelBytes + channel)] = plane[i];
  }
  return pixels;
}

void write_planes(const Pixels& pixels, const at::Tensor& out) {
  auto* data = out.mutable_data_ptr<std::uint8_t>();
  const std::int64_t count = out.size(1) * out.size(2);
  for (std::int64_t channel = 0; channel < out.size(0); ++channel) {
    for (std::int64_t i = 0; i < count; ++i)
      data[channel * count + i] = pixels.data[static_cast<std::size_t>(i * kPixelBytes + channel)];
  }
}

ImageSize resized_size(const Steps& steps, std::int64_t height, std::int64_t width) {
  if (has_size(steps.size)) return steps.size;
  if (steps.shortest_edge == 0) return {height, width};
  const auto longer = [&](std::int64_t one, std::int64_t other) {
    return static_cast<std::int64_t>(static_cast<double>(steps.shortest_edge * one) /
                                     static_cast<double>(other));
  };
  if (width <= height) return {longer(height, width), steps.shortest_edge};
  return {steps.shortest_edge, longer(width, height)};
}

/// The center of [channels, height, width]; black where the image is smaller.
at::Tensor cropped(const at::Tensor& image, const ImageSize& crop) {
  const auto first = [](std::int64_t length, std::int64_t wanted) {
    return wanted > length ? -((wanted - length) / 2) : (length - wanted) / 2;
  };
  const std::int64_t top = first(image.size(1), crop.height), left = first(image.size(2), crop.width);
  const std::int64_t rows = std::min(image.size(1), crop.height);
  const std::int64_t columns = std::min(image.size(2), crop.width);
  at::Tensor out = at::zeros({image.size(0), crop.height, crop.width}, image.options());
  out.narrow(1, std::max<std::int64_t>(-top, 0), rows)
      .narrow(2, std::max<std::int64_t>(-left, 0), columns)
      .copy_(image.narrow(1, std::max<std::int64_t>(top, 0), rows)
                 .narrow(2, std::max<std::int64_t>(left, 0), columns));
  return out;
}

void check_image_bytes(const at::Tensor& images) {
  const bool fits = images.defined() && images.is_cpu() && images.dim() == 4 &&
                    images.scalar_type() == at::kByte && (images.size(1) == 1 || images.size(1) == 3) &&
                    images.numel() > 0;
  if (fits) return;
  throw UsageError(fmt::format(
      "an image processor takes uint8 images on the CPU, [rows, 1 or 3 channels, height, width]; got {}",
      images.defined() ? fmt::format("{} {}", images.toString(), c10::str(images.sizes()))
                       : "an undefined tensor"));
}

/// What a value of bytes divided by 255 stands for: `scale` times that is the processor's.
double scale_of(const ImageProcessorConfig& config) {
  const double scale = config.do_rescale ? 255 * config.rescale_factor : 255;
  // 255 * (1 / 255), whatever the file rounded it to.
  return std::abs(scale - 1) < 1e-9 ? 1 : scale;
}

std::vector<float> in_shares_of_white(const std::array<float, 3>& values, double scale) {
  std::vector<float> shares;
  for (const float value : values)
    shares.push_back(scale == 1 ? value : static_cast<float>(static_cast<double>(value) / scale));
  return shares;
}

}  // namespace

std::vector<float> ImageProcessorConfig::mean() const {
  return in_shares_of_white(do_normalize ? image_mean : std::array<float, 3>{}, scale_of(*this));
}

std::vector<float> ImageProcessorConfig::std() const {
  return in_shares_of_white(do_normalize ? image_std : std::array<float, 3>{1, 1, 1}, scale_of(*this));
}

ImageSize ImageProcessorConfig::result_size() const {
  const Steps steps = steps_of(*this);
  return has_size(steps.crop) ? steps.crop : steps.size;
}

void ImageProcessorConfig::set_result_size(std::int64_t pixels) {
  if (pixels < 1)
    throw UsageError(fmt::format("the size of images is {} pixels, expected at least 1", pixels));
  const auto scaled = [&](std::int64_t edge, std::int64_t cropped_edge) {
    return std::max<std::int64_t>(
        std::llround(static_cast<double>(edge * pixels) / static_cast<double>(cropped_edge)), pixels);
  };
  if (crop_pct > 0) {
    shortest_edge = pixels;
  } else if (do_center_crop) {
    if (has_size(size)) {
      size = {scaled(size.height, crop_size.height), scaled(size.width, crop_size.width)};
    } else {
      shortest_edge = scaled(shortest_edge, std::min(crop_size.height, crop_size.width));
    }
  } else {
    // Without a crop, only a square has this size whatever the image.
    shortest_edge = 0;
    size = {pixels, pixels};
  }
  if (do_center_crop) crop_size = {pixels, pixels};
  do_resize = true;
}

ImageFolderOptions ImageProcessorConfig::folder_options() const {
  const Steps steps = steps_of(*this);
  ImageFolderOptions options;
  options.resize = steps.shortest_edge;
  options.resize_to = steps.size;
  options.filter = resample;
  options.center_crop = steps.crop;
  options.center_rounds_down = true;
  options.mean = mean();
  options.std = std();
  return options;
}

at::Tensor resize_images(const ImageProcessorConfig& processor, const at::Tensor& images) {
  check_image_bytes(images);
  const Steps steps = steps_of(processor);
  const at::Tensor planes = images.contiguous();
  const auto size = resized_size(steps, planes.size(2), planes.size(3));
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < planes.size(0); ++row) {
    const Pixels pixels = images::resample(pixels_of(planes[row]).view(), static_cast<int>(size.width),
                                           static_cast<int>(size.height), processor.resample);
    at::Tensor image = at::empty({planes.size(1), size.height, size.width}, at::kByte);
    write_planes(pixels, image);
    rows.push_back(has_size(steps.crop) ? cropped(image, steps.crop) : image);
  }
  return at::stack(rows);
}

at::Tensor process_images(const ImageProcessorConfig& processor, const at::Tensor& images) {
  const at::Tensor resized = resize_images(processor, images);
  return normalize_images(resized.expand({-1, 3, -1, -1}), processor.mean(), processor.std());
}

void save_image_processor(const ImageProcessorConfig& processor, const std::filesystem::path& folder) {
  write_atomically(folder / kImageProcessorFileName, processor.to_json());
}

}  // namespace lockstep::models
