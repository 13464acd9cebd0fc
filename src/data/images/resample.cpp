#include "data/images/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lockstep::images {
namespace {

/// Fraction bits of Pillow's fixed-point format: 32 minus 8 bits of result and 2 bits of headroom.
constexpr int kPrecisionBits = 32 - 8 - 2;

/// For each pixel of the result: the first input pixel, the number of input pixels, and their weights.
struct Weights {
  struct Span {
    int first;
    int count;
    const int* weights;
  };
  int taps = 0;
  std::vector<int> first;
  std::vector<int> count;
  std::vector<int> values;

  Span operator[](int place) const {
    const auto at = static_cast<std::size_t>(place);
    return {first[at], count[at], values.data() + at * static_cast<std::size_t>(taps)};
  }
};

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * M_PI;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

double box_of_one(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double hamming(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x = x * M_PI;
  return std::sin(x) / x * (0.54F + 0.46F * std::cos(x));
}

/// A filter, and how far from its center it is not zero.
struct Kernel {
  double (*weight)(double);
  double support;
};

Kernel kernel_of(ImageFilter filter) {
  switch (filter) {
    case ImageFilter::bicubic:
      return {cubic, 2.0};
    case ImageFilter::lanczos:
      return {lanczos, 3.0};
    case ImageFilter::box:
      return {box_of_one, 0.5};
    case ImageFilter::hamming:
      return {hamming, 1.0};
    case ImageFilter::bilinear:
      break;
  }
  return {triangle, 1.0};
}

/// Pillow's precompute_coeffs and normalize_coeffs_8bpc, operation for operation.
Weights weights_of(int size, double from, double to, int out_size, const Kernel& kernel) {
  const double scale = (to - from) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  const double inverse = 1.0 / filter_scale;
  Weights result;
  result.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  result.values.assign(static_cast<std::size_t>(out_size) * static_cast<std::size_t>(result.taps), 0);
  std::vector<double> real(static_cast<std::size_t>(result.taps));
  for (int place = 0; place < out_size; ++place) {
    const double center = from + (place + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), size) - first;
    double sum = 0;
    for (int tap = 0; tap < count; ++tap) {
      const double weight = kernel.weight((tap + first - center + 0.5) * inverse);
      real[static_cast<std::size_t>(tap)] = weight;
      sum += weight;
    }
    int* values =
        result.values.data() + static_cast<std::size_t>(place) * static_cast<std::size_t>(result.taps);
    for (int tap = 0; tap < count; ++tap) {
      double weight = real[static_cast<std::size_t>(tap)];
      if (sum != 0.0) weight /= sum;
      values[tap] = static_cast<int>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecisionBits));
    }
    result.first.push_back(first);
    result.count.push_back(count);
  }
  return result;
}

using Lanes = int __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(4)));

/// The loops multiply 32-bit integers, for which the oldest x86 has no vector instruction: the variant is
/// selected at load time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FAST_LOOPS __attribute__((target_clones("default", "avx2")))
#else
#define LOCKSTEP_FAST_LOOPS
#endif

LOCKSTEP_FAST_LOOPS
void resample_row(const std::uint8_t* row, std::uint8_t* out, int out_width, const Weights& weights) {
  for (int x = 0; x < out_width; ++x) {
    const auto at = static_cast<std::size_t>(x);
    const int* values = weights.values.data() + at * static_cast<std::size_t>(weights.taps);
    const std::uint8_t* pixel = row + weights.first[at] * kPixelBytes;
    constexpr int kHalf = 1 << (kPrecisionBits - 1);
    Lanes sum = {kHalf, kHalf, kHalf, kHalf};
    for (int tap = 0; tap < weights.count[at]; ++tap) {
      Bytes bytes;
      std::memcpy(&bytes, pixel + tap * kPixelBytes, sizeof bytes);
      sum += __builtin_convertvector(bytes, Lanes) * values[tap];
    }
    sum >>= kPrecisionBits;
    for (int lane = 0; lane < 4; ++lane)
      out[x * kPixelBytes + lane] =
          static_cast<std::uint8_t>(std::clamp(static_cast<int>(sum[lane]), 0, 255));
  }
}

LOCKSTEP_FAST_LOOPS
void add_weighted(const std::uint8_t* row, int weight, int* sums, std::ptrdiff_t count) {
  for (std::ptrdiff_t place = 0; place < count; ++place) sums[place] += row[place] * weight;
}

LOCKSTEP_FAST_LOOPS
void store_sums(const int* sums, std::uint8_t* out, std::ptrdiff_t count) {
  for (std::ptrdiff_t place = 0; place < count; ++place)
    out[place] = static_cast<std::uint8_t>(std::clamp(sums[place] >> kPrecisionBits, 0, 255));
}

/// Resamples every row of `image` to `width` pixels.
Pixels horizontal(const PixelView& image, const Box& box, int width, const Kernel& kernel) {
  const Weights weights = weights_of(image.width, box.left, box.right, width, kernel);
  Pixels out(width, image.height);
  for (int y = 0; y < image.height; ++y) resample_row(image.row(y), out.row(y), width, weights);
  return out;
}

Pixels vertical(const PixelView& image, const Weights& weights, int height) {
  Pixels out(image.width, height);
  const auto count = image.width * kPixelBytes;
  std::vector<int> sums(static_cast<std::size_t>(count));
  for (int y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (kPrecisionBits - 1));
    const auto span = weights[y];
    for (int tap = 0; tap < span.count; ++tap)
      add_weighted(image.row(span.first + tap), span.weights[tap], sums.data(), count);
    store_sums(sums.data(), out.row(y), count);
  }
  return out;
}

Pixels copy(const PixelView& image) {
  Pixels out(image.width, image.height);
  for (int y = 0; y < image.height; ++y)
    std::memcpy(out.row(y), image.row(y), static_cast<std::size_t>(out.stride()));
  return out;
}

}  // namespace

Pixels resample(const PixelView& image, const Box& box, int width, int height, ImageFilter filter) {
  const Kernel kernel = kernel_of(filter);
  const bool columns = width != image.width || box.left != 0 || box.right != width;
  const bool rows = height != image.height || box.top != 0 || box.bottom != height;
  if (!rows) return columns ? horizontal(image, box, width, kernel) : copy(image);
  const Weights weights = weights_of(image.height, box.top, box.bottom, height, kernel);
  if (!columns) return vertical(image, weights, height);
  // The order of the two roundings is that of Pillow from version 13 on.
  const int fewer_rows = image.height - height;
  if (fewer_rows > 0 && fewer_rows > 2 * (image.width - width))
    return horizontal(vertical(image, weights, height).view(), box, width, kernel);
  return vertical(horizontal(image, box, width, kernel).view(), weights, height);
}

}  // namespace lockstep::images
