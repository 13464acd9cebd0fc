#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// The memory layout of an image, and the size of the result. Strides count elements.
struct ImageGeometry {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channel_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
};

/// The draws for one image: the window's corner in the image, which may lie outside (such pixels are 0), and
/// whether the window is flipped.
struct ImageDraw {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
};

/// Draws the corner of a window of the result's size from the image padded with `padding` pixels of 0, and a
/// flip with the given probability. Pure.
ImageDraw draw_image(const ImageGeometry& geometry, std::int64_t padding, double flip_probability,
                     std::uint64_t seed) noexcept;

/// The transform of a pixel: x / 255 for bytes, then (x - mean) / std, in float32 like torchvision.
class PixelScale {
 public:
  /// One mean and one standard deviation per channel, or none.
  PixelScale(std::vector<float> mean, std::vector<float> std);

  /// The results for the 256 byte values of a channel.
  const float* bytes(std::int64_t channel) const {
    return bytes_.data() + 256 * (bytes_.size() > 256 ? channel : 0);
  }
  float of(float value, std::int64_t channel) const {
    if (mean_.empty()) return value;
    return (value - mean_[static_cast<std::size_t>(channel)]) / std_[static_cast<std::size_t>(channel)];
  }

 private:
  std::vector<float> mean_;
  std::vector<float> std_;
  std::vector<float> bytes_;
};

/// Writes [channels, out_height, out_width], contiguous, to `out`.
void transform_image(const std::uint8_t* image, float* out, const ImageGeometry& geometry,
                     const ImageDraw& draw, const PixelScale& scale);
void transform_image(const float* image, float* out, const ImageGeometry& geometry, const ImageDraw& draw,
                     const PixelScale& scale);
/// Copies the bytes unchanged.
void copy_image(const std::uint8_t* image, std::uint8_t* out, const ImageGeometry& geometry,
                const ImageDraw& draw);

}  // namespace lockstep
