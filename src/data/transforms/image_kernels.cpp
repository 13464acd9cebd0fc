#include "data/transforms/image_kernels.hpp"

#include <algorithm>
#include <utility>

#include "core/random.hpp"

namespace lockstep {
namespace {

/// The columns of a row of the window that lie inside the image.
struct Inside {
  std::int64_t begin;
  std::int64_t end;
};

Inside inside_of(const ImageGeometry& geometry, const ImageDraw& draw) {
  const auto begin = std::clamp<std::int64_t>(-draw.left, 0, geometry.out_width);
  const auto end = std::clamp<std::int64_t>(geometry.width - draw.left, begin, geometry.out_width);
  return {begin, end};
}

template <class Value, class Pixel, class Out>
void write_row(const Pixel* row, Out* out, const ImageGeometry& geometry, const ImageDraw& draw,
               const Value& value) {
  const auto [begin, end] = inside_of(geometry, draw);
  const Out outside = value(Pixel{0});
  std::fill(out, out + begin, outside);
  const auto step = geometry.column_stride;
  if (step == 1) {
    for (std::int64_t x = begin; x < end; ++x) out[x] = value(row[x + draw.left]);
  } else {
    for (std::int64_t x = begin; x < end; ++x) out[x] = value(row[(x + draw.left) * step]);
  }
  std::fill(out + end, out + geometry.out_width, outside);
  if (draw.flip) std::reverse(out, out + geometry.out_width);
}

template <class Value, class Pixel, class Out>
void write_channel(const Pixel* channel, Out* out, const ImageGeometry& geometry, const ImageDraw& draw,
                   const Value& value) {
  for (std::int64_t y = 0; y < geometry.out_height; ++y, out += geometry.out_width) {
    const auto row = y + draw.top;
    if (row < 0 || row >= geometry.height) {
      std::fill(out, out + geometry.out_width, value(Pixel{0}));
    } else {
      write_row(channel + row * geometry.row_stride, out, geometry, draw, value);
    }
  }
}

}  // namespace

ImageDraw draw_image(const ImageGeometry& geometry, std::int64_t padding, double flip_probability,
                     std::uint64_t seed) noexcept {
  const auto rows = geometry.height + 2 * padding - geometry.out_height + 1;
  const auto columns = geometry.width + 2 * padding - geometry.out_width + 1;
  RandomBits random(seed);
  ImageDraw draw;
  draw.top = random.below(rows) - padding;
  draw.left = random.below(columns) - padding;
  draw.flip = random.uniform() < flip_probability;
  return draw;
}

PixelScale::PixelScale(std::vector<float> mean, std::vector<float> std)
    : mean_(std::move(mean)), std_(std::move(std)) {
  const auto channels = std::max<std::size_t>(mean_.size(), 1);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      bytes_.push_back(of(static_cast<float>(byte) / 255.0F, static_cast<std::int64_t>(channel)));
    }
  }
}

void transform_image(const std::uint8_t* image, float* out, const ImageGeometry& geometry,
                     const ImageDraw& draw, const PixelScale& scale) {
  const auto pixels = geometry.out_height * geometry.out_width;
  for (std::int64_t channel = 0; channel < geometry.channels; ++channel) {
    write_channel(image + channel * geometry.channel_stride, out + channel * pixels, geometry, draw,
                  [table = scale.bytes(channel)](std::uint8_t byte) { return table[byte]; });
  }
}

void transform_image(const float* image, float* out, const ImageGeometry& geometry, const ImageDraw& draw,
                     const PixelScale& scale) {
  const auto pixels = geometry.out_height * geometry.out_width;
  for (std::int64_t channel = 0; channel < geometry.channels; ++channel) {
    write_channel(image + channel * geometry.channel_stride, out + channel * pixels, geometry, draw,
                  [&](float value) { return scale.of(value, channel); });
  }
}

void copy_image(const std::uint8_t* image, std::uint8_t* out, const ImageGeometry& geometry,
                const ImageDraw& draw) {
  const auto pixels = geometry.out_height * geometry.out_width;
  for (std::int64_t channel = 0; channel < geometry.channels; ++channel) {
    write_channel(image + channel * geometry.channel_stride, out + channel * pixels, geometry, draw,
                  [](std::uint8_t byte) { return byte; });
  }
}

}  // namespace lockstep
