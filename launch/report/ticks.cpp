#include "report/ticks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/number_words.hpp"

namespace lockstep::launch {
namespace {

/// The smallest of 1, 2 and 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// With the digits that ticks at this distance need; all ticks of an axis up to `largest` look alike.
std::string tick_label(double value, double step, double largest) {
  const double size = std::abs(value);
  if (size < step * 1e-6) return "0";
  if (largest >= 1e12 || largest < 1e-3 || step < 1e-7) return number_words(value);
  const bool in_thousands = largest >= 10'000 && std::fmod(step, 100) == 0;
  if (in_thousands && largest >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (in_thousands && largest >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (in_thousands) return fmt::format("{:.4g}k", value / 1000);
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  return decimals == 0 ? count_words(value) : fmt::format("{:.{}f}", value, decimals);
}

/// Finite, and wide enough for different ticks.
void widen(double& low, double& high) {
  constexpr double kLargest = 1e300;
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  const double least = std::max(std::max(std::abs(low), std::abs(high)) * 1e-9, 1e-300);
  if (high - low >= least) return;
  const double half = low == 0 ? 1 : std::abs(low) * 0.1;
  low -= half;
  high += half;
}

std::vector<double> log_positions(double low, double high, const std::vector<double>& factors, int stride) {
  std::vector<double> positions;
  const int first = static_cast<int>(std::floor(std::log10(low))),
            last = static_cast<int>(std::ceil(std::log10(high)));
  for (int exponent = first; exponent <= last; ++exponent) {
    if (exponent % stride != 0) continue;
    for (const double factor : factors) {
      const double position = factor * std::pow(10.0, exponent);
      if (position >= low * (1 - 1e-9) && position <= high * (1 + 1e-9)) positions.push_back(position);
    }
  }
  return positions;
}

}  // namespace

double Axis::fraction_of(double value) const {
  if (is_log) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Axis linear_axis(double low, double high, int most) {
  Axis axis;
  widen(low, high);
  axis.low = low;
  axis.high = high;
  const double step = round_step((high - low) / std::max(most, 2));
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * most + 2; ++i) {
    const double value = (first + i) * step;
    if (value > high + step * 1e-9) break;
    axis.ticks.push_back({value, tick_label(value, step, std::max(std::abs(low), std::abs(high)))});
  }
  return axis;
}

Axis log_axis(double low, double high, int most) {
  Axis axis;
  axis.is_log = true;
  axis.low = std::clamp(low, 1e-300, 1e300);
  axis.high = std::clamp(high, 1e-300, 1e300);
  if (axis.high < axis.low * 1.2) {
    axis.low /= 2;
    axis.high *= 2;
  }
  const double decades = std::log10(axis.high / axis.low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(most, 2))));
  auto positions = log_positions(axis.low, axis.high, {1}, stride);
  if (decades < most / 3.0) positions = log_positions(axis.low, axis.high, {1, 2, 5}, 1);
  if (positions.size() < 2) {
    axis.ticks = linear_axis(axis.low, axis.high, most).ticks;
    std::erase_if(axis.ticks, [&](const Axis::Tick& tick) { return tick.value < axis.low; });
    return axis;
  }
  for (const double position : positions) axis.ticks.push_back({position, number_words(position)});
  return axis;
}

}  // namespace lockstep::launch
