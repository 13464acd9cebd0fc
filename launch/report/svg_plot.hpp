#pragma once

#include <string>
#include <vector>

#include "report/curves.hpp"

namespace lockstep::launch {

/// Colors and dashes are numbered from 0; the style sheet has this many colors, which people with color
/// vision deficiencies can tell apart. More curves repeat a color with another dash.
inline constexpr int kPlotColors = 8;
std::string dashes_of(int style);

/// One curve of a plot.
struct PlotCurve {
  std::string label;
  int style = 0;
  /// Few values: each gets a dot.
  bool has_dots = false;
  bool is_noisy = true;
  /// In ascending finite x. Values that are not finite interrupt the curve and are marked.
  std::vector<PlotPoint> points;
};

/// A vertical mark: something happened there.
struct PlotMark {
  double x = 0;
  /// "restart", "recovery", "failure" or "checkpoint": a class of the style sheet.
  std::string kind;
  std::string text;
};

struct Plot {
  /// For readers that do not see it.
  std::string title;
  /// "step", and what stands behind y values: "samples/s"; empty for plain numbers.
  std::string x_title, y_unit;
  std::vector<PlotCurve> curves;
  std::vector<PlotMark> marks;
  enum class Scale { automatic, linear };
  Scale scale = Scale::automatic;
  /// Whether noisy curves are smoothed, with the raw values behind them.
  bool smooths = true;
};

/// In CSS pixels.
struct PlotSize {
  int width = 0;
  int height = 0;
};

struct DrawnPlot {
  std::string svg;
  bool is_log = false;
  /// Neighbours on each side in the mean of the first smoothed curve; 0: none was smoothed.
  std::size_t smoothed_over = 0;
  /// Whether the curves have dots: there may be no room for them.
  std::vector<bool> dotted;
};

/// A position on the x axis: "step 120", "3.5 hours since the first log". *Local*.
std::string position_words(const std::string& x_title, double x);

/// Whether any curve has two finite values, or one that a dot shows: otherwise a plot would be empty.
bool can_be_drawn(const Plot& plot);

/// Draws the plot as SVG in each of the sizes; it may be scaled. It uses the classes and variables of
/// page_style(), and no script. A value is shown when the pointer is above it. *Local*.
std::vector<DrawnPlot> draw(const Plot& plot, const std::vector<PlotSize>& sizes);

/// The picture of a curve in a legend: a short line, with a dot if the curve has some. *Local*.
std::string legend_key(int style, bool has_dots);

}  // namespace lockstep::launch
