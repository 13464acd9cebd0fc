#include "data/images/draw.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep::images {
namespace {

constexpr int kTries = 10;

/// Python's round(): halves are rounded to the even number.
int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

double draw_ratio(const Range& ratio, RandomBits& random) {
  return std::exp(random.uniform(std::log(ratio[0]), std::log(ratio[1])));
}

int draw_offset(int room, RandomBits& random) { return static_cast<int>(random.below(room + 1)); }

}  // namespace

Region draw_resized_crop(int width, int height, const Range& scale, const Range& ratio, RandomBits& random) {
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double target = area * random.uniform(scale[0], scale[1]);
    const double aspect = draw_ratio(ratio, random);
    const int w = rounded(std::sqrt(target * aspect));
    const int h = rounded(std::sqrt(target / aspect));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int top = draw_offset(height - h, random);
    return {draw_offset(width - w, random), top, w, h};
  }
  const double own = static_cast<double>(width) / height;
  int w = width, h = height;
  if (own < ratio[0]) h = rounded(width / ratio[0]);
  if (own > ratio[1]) w = rounded(height * ratio[1]);
  w = std::clamp(w, 1, width);
  h = std::clamp(h, 1, height);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

std::optional<Region> draw_erasing(int width, int height, const Range& scale, const Range& ratio,
                                   RandomBits& random) {
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double target = area * random.uniform(scale[0], scale[1]);
    const double aspect = draw_ratio(ratio, random);
    const int h = rounded(std::sqrt(target * aspect));
    const int w = rounded(std::sqrt(target / aspect));
    if (h >= height || w >= width) continue;
    const int top = draw_offset(height - h, random);
    return Region{draw_offset(width - w, random), top, w, h};
  }
  return std::nullopt;
}

double draw_beta(double alpha, RandomBits& random) {
  std::gamma_distribution<double> gamma(alpha);
  const double first = gamma(random);
  const double second = gamma(random);
  // Both are 0 if alpha is tiny. In the limit the result is 0 or 1.
  return first + second > 0 ? first / (first + second) : static_cast<double>(random.below(2));
}

Region draw_cutmix(int width, int height, double lambda, RandomBits& random) {
  const int x = static_cast<int>(random.below(width));
  const int y = static_cast<int>(random.below(height));
  const double half = 0.5 * std::sqrt(1.0 - lambda);
  const int half_width = static_cast<int>(half * width);
  const int half_height = static_cast<int>(half * height);
  const int left = std::max(x - half_width, 0), right = std::min(x + half_width, width);
  const int top = std::max(y - half_height, 0), bottom = std::min(y + half_height, height);
  return {left, top, right - left, bottom - top};
}

}  // namespace lockstep::images
