#include "report/curves.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::launch {
namespace {

/// Of fewer points, each can be seen.
constexpr std::size_t kFewPoints = 30;

/// The value at each place of a line through its neighbours: inside the curve their mean, and at its ends,
/// where there are fewer on one side, without the error of a mean there.
std::vector<double> moving_lines(const std::vector<double>& values, std::size_t half) {
  const std::size_t size = values.size();
  std::vector<long double> sums(size + 1, 0), products(size + 1, 0);
  for (std::size_t i = 0; i < size; ++i) {
    sums[i + 1] = sums[i] + values[i];
    products[i + 1] = products[i] + static_cast<long double>(i) * values[i];
  }
  std::vector<double> lines(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t begin = i - std::min(half, i), end = std::min(size, i + half + 1);
    const auto count = static_cast<long double>(end - begin);
    const long double middle = static_cast<long double>(begin + end - 1) / 2;
    const long double mean = (sums[end] - sums[begin]) / count;
    // Of positions at a distance of 1.
    const long double variance = (count * count - 1) / 12;
    const long double slope =
        count < 2 ? 0 : ((products[end] - products[begin]) / count - middle * mean) / variance;
    lines[i] = static_cast<double>(mean + slope * (static_cast<long double>(i) - middle));
  }
  return lines;
}

}  // namespace

std::vector<PlotPoint> thinned(std::span<const PlotPoint> points, std::size_t columns) {
  if (points.size() <= 4 * columns || columns == 0) return {points.begin(), points.end()};
  const double begin = points.front().x;
  const double width = points.back().x - begin;
  const auto column_of = [&](const PlotPoint& point) {
    if (!(width > 0)) return std::size_t{0};
    const double column = (point.x - begin) / width * static_cast<double>(columns);
    return std::min(static_cast<std::size_t>(column), columns - 1);
  };
  std::vector<PlotPoint> kept;
  for (std::size_t first = 0; first < points.size();) {
    const std::size_t column = column_of(points[first]);
    std::size_t last = first, low = first, high = first;
    for (std::size_t i = first; i < points.size() && column_of(points[i]) == column; ++i) {
      last = i;
      if (points[i].y < points[low].y) low = i;
      if (points[i].y > points[high].y) high = i;
    }
    std::vector<std::size_t> chosen{first, low, high, last};
    std::ranges::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen) kept.push_back(points[i]);
    first = last + 1;
  }
  return kept;
}

std::vector<PlotPoint> grouped(std::span<const PlotPoint> points, std::size_t size) {
  std::vector<PlotPoint> means;
  means.reserve(points.size() / size + 1);
  for (std::size_t first = 0; first < points.size(); first += size) {
    const std::size_t end = std::min(first + size, points.size());
    PlotPoint sum;
    for (std::size_t i = first; i < end; ++i) sum = {sum.x + points[i].x, sum.y + points[i].y};
    const auto count = static_cast<double>(end - first);
    means.push_back({sum.x / count, sum.y / count});
  }
  return means;
}

double spread_in_groups(std::span<const PlotPoint> points, const std::vector<PlotPoint>& means,
                        std::size_t size) {
  double sum = 0;
  for (std::size_t group = 0; group < means.size(); ++group) {
    for (const auto& point : points.subspan(group * size, std::min(size, points.size() - group * size)))
      sum += std::abs(point.y - means[group].y);
  }
  return points.empty() ? 0 : sum / static_cast<double>(points.size());
}

std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points, std::size_t half) {
  std::vector<double> values;
  values.reserve(points.size());
  for (const auto& point : points) values.push_back(point.y);
  const auto means = moving_lines(moving_lines(values, half), half);
  auto result = points;
  for (std::size_t i = 0; i < result.size(); ++i) result[i].y = means[i];
  return result;
}

std::size_t smoothing_of(const std::vector<PlotPoint>& points, double spread) {
  if (points.size() < kFewPoints) return 0;
  const std::size_t half = std::max<std::size_t>(2, points.size() / 40);
  const auto means = smoothed(points, half);
  double noise = 0;
  for (std::size_t i = 0; i < points.size(); ++i) noise += std::abs(points[i].y - means[i].y);
  const auto [low, high] = std::ranges::minmax(means, {}, &PlotPoint::y);
  const double range = high.y - low.y;
  // A noise of less than half a percent of the height is not seen.
  return spread + noise / static_cast<double>(points.size()) > 0.005 * range ? half : 0;
}

}  // namespace lockstep::launch
