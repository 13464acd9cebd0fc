#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::images {

/// Bytes per pixel: red, green, blue and one unused byte, as in Pillow. Four bytes are a single load.
inline constexpr std::ptrdiff_t kPixelBytes = 4;

/// A non-owning view of pixels: `height` rows of `width` pixels, `stride` bytes apart.
struct PixelView {
  const std::uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  std::ptrdiff_t stride = 0;

  const std::uint8_t* row(int y) const { return data + y * stride; }
  /// A part of the view, which must lie inside.
  PixelView part(int left, int top, int part_width, int part_height) const {
    return {row(top) + left * kPixelBytes, part_width, part_height, stride};
  }
};

/// Owned pixels, initially uninitialized.
struct Pixels {
  Pixels() = default;
  Pixels(int columns, int rows)
      : width(columns),
        height(rows),
        data(std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(columns) *
                                                            static_cast<std::size_t>(rows) * kPixelBytes)) {}

  std::ptrdiff_t stride() const { return width * kPixelBytes; }
  std::uint8_t* row(int y) { return data.get() + y * stride(); }
  PixelView view() const { return {data.get(), width, height, stride()}; }

  int width = 0;
  int height = 0;
  std::unique_ptr<std::uint8_t[]> data;
};

}  // namespace lockstep::images
