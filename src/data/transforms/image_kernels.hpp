#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Where an image's pixels lie, and how large the result is. Strides count elements.
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

/// What was drawn for one image: the window's corner in the image, which may lie outside (such pixels are 0),
/// and whether the window is mirrored.
struct ImageDraw {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
};

/// Draws a corner of a window of the result's size from the image with `padding` pixels of 0 around it, and a
/// flip of the given probability. Pure.
ImageDraw draw_image(const ImageGeometry& geometry, std::int64_t padding, double flip_probability,
                     std::uint64_t seed) noexcept;

/// What becomes of a pixel: x / 255 for bytes, then (x - mean) / std, in float32 as torchvision computes it.
class PixelScale {
 public:
  /// One mean and one standard deviation for each channel, or none at all.
  PixelScale(std::vector<float> mean, std::vector<float> std);

  /// The 256 results of a channel's bytes.
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

/// Writes [channels, out_height, out_width] to `out`, row after row.
void transform_image(const std::uint8_t* image, float* out, const ImageGeometry& geometry,
                     const ImageDraw& draw, const PixelScale& scale);
void transform_image(const float* image, float* out, const ImageGeometry& geometry, const ImageDraw& draw,
                     const PixelScale& scale);
/// The bytes as they are.
void copy_image(const std::uint8_t* image, std::uint8_t* out, const ImageGeometry& geometry,
                const ImageDraw& draw);

}  // namespace lockstep
