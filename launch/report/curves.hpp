#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::launch {

/// A position in a plot, in the units of its axes.
struct PlotPoint {
  double x = 0;
  double y = 0;
};

/// At most four points for each of `columns` equal parts of the x range: the first, the lowest, the highest
/// and the last, in their order, so that no extreme is lost. Points are in ascending x, and finite. *Local*.
std::vector<PlotPoint> thinned(std::span<const PlotPoint> points, std::size_t columns);

/// The means of each `size` points that follow each other. *Local*.
std::vector<PlotPoint> grouped(std::span<const PlotPoint> points, std::size_t size);

/// The mean distance of values from the mean of their group of grouped(). *Local*.
double spread_in_groups(std::span<const PlotPoint> points, const std::vector<PlotPoint>& means,
                        std::size_t size);

/// The mean over up to `half` neighbours on each side, twice, in linear time. Near the ends there are as many
/// on each side as the nearer one has, so that a trend is not bent. *Local*.
std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points, std::size_t half);

/// How many neighbours on each side smoothing takes of such a curve; 0 if it is short, or smooth already.
/// `spread` is that of the values of which the points are means. *Local*.
std::size_t smoothing_of(const std::vector<PlotPoint>& points, double spread = 0);

}  // namespace lockstep::launch
