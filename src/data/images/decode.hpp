#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/images/pixels.hpp"

namespace lockstep::images {

/// A part of an image, in pixels of the full-size image; must lie inside it.
struct Region {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  /// 1, 2, 4 or 8: a JPEG is decoded at 1/denominator of its size. Not used for PNG.
  int denominator = 1;
};

/// Selects the region. Called once with the image's width and height, before any pixel is decoded.
using ChooseRegion = std::function<Region(int width, int height)>;

/// A decoded region. With `denominator` d it has the columns floor(left / d) to ceil((left + width) / d) of
/// the smaller image, and likewise rows.
struct Decoded {
  Pixels memory;
  PixelView view = {};
  int denominator = 1;
};

/// Decodes a region of a JPEG or PNG file into the RGB of Pillow's `Image.open(file).convert("RGB")`. `name`
/// is the file's, for errors. Throws DataError, naming the file, if it is neither JPEG nor PNG, damaged,
/// truncated, or has more than `max_pixels` pixels. Pure; thread-safe.
Decoded decode(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
               const ChooseRegion& choose);

/// Throws the DataError of a file that cannot be decoded: "'name': what".
[[noreturn]] void refuse(const std::string& name, const std::string& what);

/// Throws DataError for an image without pixels or with more than `max_pixels`.
void check_pixels(const std::string& name, std::int64_t width, std::int64_t height, std::int64_t max_pixels);

}  // namespace lockstep::images
