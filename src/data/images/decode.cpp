#include "data/images/decode.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "data/images/jpeg.hpp"
#include "data/images/png.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::images {
namespace {

bool begins_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

void refuse(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("'{}': {}.", name, what));
}

void check_pixels(const std::string& name, std::int64_t width, std::int64_t height, std::int64_t max_pixels) {
  if (width < 1 || height < 1) refuse(name, "the image has no pixel");
  if (width <= max_pixels / height) return;
  refuse(name, fmt::format("the image claims {} x {} pixels, more than the limit of {} (max_pixels)", width,
                           height, max_pixels));
}

Decoded decode(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
               const ChooseRegion& choose) {
  constexpr std::array<std::uint8_t, 3> kJpeg = {0xFF, 0xD8, 0xFF};
  constexpr std::array<std::uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  if (begins_with(bytes, kJpeg)) return decode_jpeg(bytes, name, max_pixels, choose);
  if (begins_with(bytes, kPng)) return decode_png(bytes, name, max_pixels, choose);
  refuse(name, bytes.empty() ? "the file is empty" : "the file is neither a JPEG nor a PNG image");
}

}  // namespace lockstep::images
