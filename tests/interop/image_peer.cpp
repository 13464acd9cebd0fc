// Does to images what image_compare.py asks for: a command a line, `ok WIDTH HEIGHT` and the RGB bytes or
// `error TEXT` back.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "data/images/color.hpp"
#include "data/images/decode.hpp"
#include "data/images/draw.hpp"
#include "data/images/resample.hpp"
#include "lockstep/core/error.hpp"

namespace {

namespace images = lockstep::images;
constexpr std::int64_t kMaxPixels = 1'000'000;

void answer(const images::PixelView& view) {
  std::cout << "ok " << view.width << ' ' << view.height << '\n';
  for (int y = 0; y < view.height; ++y) {
    for (int x = 0; x < view.width; ++x)
      std::cout.write(reinterpret_cast<const char*>(view.row(y) + x * images::kPixelBytes), 3);
  }
}

images::Pixels adjusted(images::Pixels pixels, const std::string& what, double factor) {
  if (what == "brightness") images::adjust_brightness(pixels, factor);
  if (what == "contrast") images::adjust_contrast(pixels, factor);
  if (what == "saturation") images::adjust_saturation(pixels, factor);
  if (what == "hue") images::adjust_hue(pixels, factor);
  return pixels;
}

/// What is drawn for an image of this size with the seeds 0, 1, 2, ...: the corner and size of each
/// rectangle.
void draw(const std::string& what, int width, int height, int count) {
  std::cout << "draws";
  for (int seed = 0; seed < count; ++seed) {
    lockstep::RandomBits random(lockstep::RandomBits(static_cast<std::uint64_t>(seed))());
    if (what == "betas") {
      std::cout << ' ' << images::draw_beta(0.4, random);
      continue;
    }
    const auto region =
        what == "crops"
            ? images::draw_resized_crop(width, height, {0.08, 1.0}, {3.0 / 4.0, 4.0 / 3.0}, random)
            : images::draw_erasing(width, height, {0.02, 0.33}, {0.3, 3.3}, random)
                  .value_or(images::Region{});
    std::cout << ' ' << region.left << ' ' << region.top << ' ' << region.width << ' ' << region.height;
  }
  std::cout << '\n';
}

/// The commands: crops, erasings or betas WIDTH HEIGHT COUNT; region PATH left top width height denominator
/// (0 0 0 0 d: all of it); resize PATH left top width height columns rows [filter]; brightness, contrast,
/// saturation, hue PATH factor.
void obey(const std::string& line) {
  std::istringstream words(line);
  std::string what, path;
  words >> what >> path;
  if (what == "crops" || what == "erasings" || what == "betas") {
    int height = 0, count = 0;
    words >> height >> count;
    return draw(what, std::stoi(path), height, count);
  }
  const std::vector<double> numbers{std::istream_iterator<double>(words), {}};
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto whole = [&](int width, int height) { return images::Region{0, 0, width, height}; };
  const auto whole_number = [&](std::size_t place) { return static_cast<int>(numbers.at(place)); };
  const auto region = [&](int width, int height) {
    if (numbers.size() < 5) return whole(width, height);
    images::Region wanted{whole_number(0), whole_number(1), whole_number(2), whole_number(3), 1};
    if (wanted.width == 0) wanted = whole(width, height);
    if (what == "region") wanted.denominator = whole_number(4);
    return wanted;
  };
  const auto decoded = images::decode({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()},
                                      path, kMaxPixels, region);
  if (what == "region") return answer(decoded.view);
  const bool resize = what == "resize";
  const auto filter = static_cast<lockstep::ImageFilter>(resize && numbers.size() > 6 ? whole_number(6) : 0);
  auto pixels = images::resample(decoded.view, resize ? whole_number(4) : decoded.view.width,
                                 resize ? whole_number(5) : decoded.view.height, filter);
  if (!resize) pixels = adjusted(std::move(pixels), what, numbers.at(0));
  answer(pixels.view());
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      obey(line);
    } catch (const lockstep::Error& error) {
      std::cout << "error " << error.what() << '\n';
    }
    std::cout.flush();
  }
  return 0;
}
