#include "data/images/color.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::images {
namespace {

template <class Function>
void for_each_pixel(Pixels& pixels, const Function& function) {
  auto* pixel = pixels.data.get();
  for (auto* const end = pixel + pixels.height * pixels.stride(); pixel != end; pixel += kPixelBytes)
    function(pixel);
}

int grey(const std::uint8_t* pixel) {
  return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16;
}

/// Pillow's Image.blend of one byte: in float32, truncated.
std::uint8_t blend(int from, int to, float alpha) {
  const float value = static_cast<float>(from) + alpha * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

/// blend() of every byte with one value.
std::array<std::uint8_t, 256> blend_table(int from, double factor) {
  std::array<std::uint8_t, 256> table{};
  for (int byte = 0; byte < 256; ++byte)
    table[static_cast<std::size_t>(byte)] = blend(from, byte, static_cast<float>(factor));
  return table;
}

void apply_table(Pixels& pixels, const std::array<std::uint8_t, 256>& table) {
  for_each_pixel(pixels, [&](std::uint8_t* pixel) {
    for (int channel = 0; channel < 3; ++channel) pixel[channel] = table[pixel[channel]];
  });
}

struct HueSaturation {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
};

/// Pillow's rgb2hsv, with its mixture of float and double; the value is the maximum of the bytes.
HueSaturation hue_saturation(const std::uint8_t* pixel) {
  const int r = pixel[0], g = pixel[1], b = pixel[2];
  const int most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const float rc = static_cast<float>(most - r) / range;
  const float gc = static_cast<float>(most - g) / range;
  const float bc = static_cast<float>(most - b) / range;
  float hue = bc - gc;
  if (r != most) hue = static_cast<float>(g == most ? 2.0 + rc - bc : 4.0 + gc - rc);
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  const auto byte = [](float share) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(share * 255.0), 0, 255));
  };
  return {byte(hue), byte(saturation)};
}

/// Pillow's hsv2rgb.
void write_hsv(std::uint8_t* pixel, std::uint8_t hue, std::uint8_t saturation, std::uint8_t value) {
  const double place = static_cast<float>(hue) * 6.0 / 255.0;
  const int sixth = static_cast<int>(std::floor(place));
  const auto rest = static_cast<float>(place - static_cast<float>(sixth));
  const auto share = static_cast<float>(static_cast<float>(saturation) / 255.0);
  const auto byte = [&](double factor) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(std::round(value * factor)), 0, 255));
  };
  const auto p = byte(1.0 - share), q = byte(1.0 - share * rest), t = byte(1.0 - share * (1.0 - rest));
  const std::array<std::array<std::uint8_t, 3>, 6> colors = {
      {{value, t, p}, {q, value, p}, {p, value, t}, {p, q, value}, {t, p, value}, {value, p, q}}};
  std::copy_n(colors[static_cast<std::size_t>(sixth % 6)].begin(), 3, pixel);
}

}  // namespace

void adjust_brightness(Pixels& pixels, double factor) { apply_table(pixels, blend_table(0, factor)); }

void adjust_contrast(Pixels& pixels, double factor) {
  std::int64_t sum = 0;
  for_each_pixel(pixels, [&](const std::uint8_t* pixel) { sum += grey(pixel); });
  const auto count = static_cast<double>(pixels.width) * pixels.height;
  apply_table(pixels, blend_table(static_cast<int>(static_cast<double>(sum) / count + 0.5), factor));
}

void adjust_saturation(Pixels& pixels, double factor) {
  for_each_pixel(pixels, [alpha = static_cast<float>(factor)](std::uint8_t* pixel) {
    const int from = grey(pixel);
    for (int channel = 0; channel < 3; ++channel) pixel[channel] = blend(from, pixel[channel], alpha);
  });
}

void adjust_hue(Pixels& pixels, double shift) {
  const auto turn = static_cast<std::uint8_t>(static_cast<int>(shift * 255));
  for_each_pixel(pixels, [&](std::uint8_t* pixel) {
    const auto [hue, saturation] = hue_saturation(pixel);
    const auto value = std::max({pixel[0], pixel[1], pixel[2]});
    write_hsv(pixel, static_cast<std::uint8_t>(hue + turn), saturation, value);
  });
}

}  // namespace lockstep::images
