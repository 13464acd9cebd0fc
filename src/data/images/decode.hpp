#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "pixels.hpp"

namespace lockstep::images {

/// Which part of an image is wanted, in pixels of the whole image; it must lie inside.
struct Region {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  /// 1, 2, 4 or 8: a JPEG may be decoded at this fraction of its size, where the loss does not show. A PNG
  /// never is.
  int denominator = 1;
};

/// Called once with the image's width and height, before a pixel is decoded.
using ChooseRegion = std::function<Region(int width, int height)>;

/// A decoded region. At `denominator` d it has the pixels floor(left / d) to ceil((left + width) / d) of the
/// smaller image, and likewise in height.
struct Decoded {
  Pixels memory;
  PixelView view = {};
  int denominator = 1;
};

/// The region of a JPEG or PNG file's bytes, in RGB as Pillow's `Image.open(file).convert("RGB")` gives it.
/// `name` is the file's, for errors. Throws DataError, naming the file: when it is neither JPEG nor PNG,
/// broken or cut off, of more than `max_pixels` pixels, or a PNG of 16-bit grey values. Pure; safe from
/// several threads.
Decoded decode(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
               const ChooseRegion& choose);

/// decode() of one format each.
Decoded decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
                    const ChooseRegion& choose);
Decoded decode_png(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
                   const ChooseRegion& choose);

/// Throws the DataError of a file that cannot be decoded: "'name': what".
[[noreturn]] void refuse(const std::string& name, const std::string& what);

/// Throws DataError for an image of no pixel or of more than `max_pixels`.
void check_pixels(const std::string& name, std::int64_t width, std::int64_t height, std::int64_t max_pixels);

}  // namespace lockstep::images
