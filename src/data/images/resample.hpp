#pragma once

#include "data/images/pixels.hpp"
#include "lockstep/data/image_filter.hpp"

namespace lockstep::images {

/// A part of an image; its edges may lie between pixels.
struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// Resamples `box` of `image` to `width` x `height` pixels: bit for bit Pillow's `Image.resize((width,
/// height), filter, box)`. The box must lie inside. Pure.
Pixels resample(const PixelView& image, const Box& box, int width, int height,
                ImageFilter filter = ImageFilter::bilinear);

/// resample() of the whole image.
inline Pixels resample(const PixelView& image, int width, int height,
                       ImageFilter filter = ImageFilter::bilinear) {
  return resample(image, {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)}, width,
                  height, filter);
}

}  // namespace lockstep::images
