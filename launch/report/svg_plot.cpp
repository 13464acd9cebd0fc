// A plot is drawn from back to front: the grid, marks, raw values, smoothed curves and dots, and invisible
// strips that show the values below the pointer. All coordinates have one decimal: a tenth of a pixel.
#include "report/svg_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/ticks.hpp"

namespace lockstep::launch {
namespace {

constexpr double kLetter = 6.6;  // The mean width of a digit of the style sheet's 11 pixels, rounded up.
constexpr double kTop = 12, kBottom = 34, kRight = 14;
/// From this ratio of the largest to the smallest value on, a logarithmic scale shows more.
constexpr double kLogRatio = 30;

/// A curve's finite parts, and where it is not finite.
struct CurveParts {
  std::vector<std::span<const PlotPoint>> raw;
  std::vector<std::vector<PlotPoint>> smooth;
  std::vector<PlotPoint> not_finite;
  std::size_t half = 0;
  /// All finite points, if the curve is interrupted so often that no screen shows the gaps.
  std::vector<PlotPoint> joined;
};

constexpr std::size_t kMostSmoothed = 20'000;
constexpr std::size_t kMostParts = 2000;

CurveParts parts_of(const PlotCurve& curve) {
  CurveParts parts;
  const std::span<const PlotPoint> points = curve.points;
  const auto is_finite = [](const PlotPoint& point) { return std::isfinite(point.y); };
  for (std::size_t begin = 0; begin < points.size();) {
    const auto rest = points.subspan(begin);
    const auto end = std::ranges::find_if_not(rest, is_finite);
    const auto size = static_cast<std::size_t>(end - rest.begin());
    if (size > 0) parts.raw.push_back(rest.first(size));
    if (end != rest.end()) parts.not_finite.push_back(*end);
    begin += size + 1;
  }
  if (parts.raw.size() <= kMostParts) return parts;
  parts.joined.reserve(points.size() - parts.not_finite.size());
  std::ranges::copy_if(points, std::back_inserter(parts.joined), is_finite);
  parts.raw = {parts.joined};
  return parts;
}

/// What is smoothed of a part, and the spread of what its points are means of.
struct ScaledPart {
  std::vector<PlotPoint> points;
  double spread = 0;
};

/// On a logarithmic scale the logarithms, so that the mean lies in the middle of what is seen.
ScaledPart scaled(std::span<const PlotPoint> part, std::size_t group, bool is_log) {
  std::vector<PlotPoint> logs;
  if (is_log) {
    logs.reserve(part.size());
    for (const auto& point : part) logs.push_back({point.x, std::log10(point.y)});
    part = logs;
  }
  if (group == 1) return {std::vector<PlotPoint>(part.begin(), part.end()), 0};
  auto means = grouped(part, group);
  const double spread = spread_in_groups(part, means, group);
  return {std::move(means), spread};
}

void smooth_parts(CurveParts& parts, bool is_log) {
  if (parts.raw.empty()) return;
  const auto longest = std::ranges::max_element(parts.raw, {}, &std::span<const PlotPoint>::size);
  // Far more points than a screen has columns are grouped before.
  const std::size_t group = 1 + longest->size() / kMostSmoothed;
  std::vector<ScaledPart> values;
  for (const auto& part : parts.raw) values.push_back(scaled(part, group, is_log));
  const auto& [points, spread] = values[static_cast<std::size_t>(longest - parts.raw.begin())];
  const std::size_t half = smoothing_of(points, spread);
  parts.half = half * group;
  if (half == 0) return;
  for (const auto& part : values) {
    parts.smooth.push_back(smoothed(part.points, half));
    for (auto& point : parts.smooth.back()) point.y = is_log ? std::pow(10.0, point.y) : point.y;
  }
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// What all sizes of a plot have in common.
struct PlotParts {
  std::vector<CurveParts> curves;
  Range x, y;
  bool is_log = false;
};

PlotParts parts_of(const Plot& plot) {
  PlotParts parts;
  for (const auto& curve : plot.curves) parts.curves.push_back(parts_of(curve));
  for (const auto& curve : parts.curves) {
    for (const auto& part : curve.raw) {
      for (const auto& point : part) {
        parts.x.add(point.x);
        parts.y.add(point.y);
      }
    }
    for (const auto& point : curve.not_finite) parts.x.add(point.x);
  }
  parts.is_log =
      plot.scale == Plot::Scale::automatic && parts.y.low > 0 && parts.y.high > kLogRatio * parts.y.low;
  for (std::size_t i = 0; i < parts.curves.size(); ++i) {
    const PlotCurve& curve = plot.curves[i];
    if (plot.smooths && curve.is_noisy && !curve.has_dots) smooth_parts(parts.curves[i], parts.is_log);
  }
  return parts;
}

Axis y_axis(const Range& range, bool is_log, int most) {
  if (is_log) {
    const double margin = std::pow(range.high / range.low, 0.04);
    return log_axis(range.low / margin, range.high * margin, most);
  }
  const double margin = (range.high - range.low) * 0.05;
  const bool from_zero = range.low >= 0 && range.low < 0.4 * range.high;
  return linear_axis(from_zero ? 0 : range.low - margin, range.high + margin, most);
}

class PlotDrawing {
 public:
  PlotDrawing(const Plot& plot, const PlotParts& parts, const PlotSize& size)
      : plot_(plot), width_(size.width), height_(size.height), parts_(parts.curves) {
    const Range& x = parts.x;
    x_ = linear_axis(x.low > 0 && x.low < 0.1 * x.high ? 0 : x.low, x.high, std::max(2, width_ / 90));
    y_ = y_axis(parts.y, parts.is_log, std::max(3, height_ / 45));
    std::size_t letters = 1;
    for (const auto& tick : y_.ticks) letters = std::max(letters, tick.label.size());
    left_ = 12 + kLetter * static_cast<double>(letters);
  }

  DrawnPlot draw() {
    svg_ = fmt::format("<svg class=\"plot{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                       plot_.curves.size() > 4 ? " many" : "", width_, height_, html_text(plot_.title));
    draw_axes();
    for (const auto& mark : plot_.marks) draw_mark(mark);
    for (std::size_t i = 0; i < parts_.size(); ++i) draw_raw(plot_.curves[i], parts_[i]);
    for (std::size_t i = 0; i < parts_.size(); ++i) draw_front(plot_.curves[i], parts_[i]);
    draw_strips();
    svg_ += "</svg>";
    DrawnPlot drawn{std::move(svg_), y_.is_log, 0, std::move(dotted_)};
    for (const auto& parts : parts_) {
      if (drawn.smoothed_over == 0) drawn.smoothed_over = parts.half;
    }
    return drawn;
  }

 private:
  double x(double value) const { return left_ + x_.fraction_of(value) * (width_ - left_ - kRight); }
  double bottom() const { return height_ - kBottom; }
  double y(double value) const {
    const double position = y_.is_log && value <= 0 ? 0 : std::clamp(y_.fraction_of(value), 0.0, 1.0);
    return bottom() - position * (bottom() - kTop);
  }

  void draw_axes() {
    for (const auto& tick : y_.ticks) {
      svg_ +=
          fmt::format("<line class=\"grid-line\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                      left_, width_ - kRight, y(tick.value), y(tick.value));
      svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left_ - 6,
                          y(tick.value) + 3.8, html_text(tick.label));
    }
    svg_ += fmt::format("<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                        left_, width_ - kRight, bottom(), bottom());
    double free_from = 0;
    for (const auto& tick : x_.ticks) {
      const double half = kLetter * static_cast<double>(tick.label.size()) / 2;
      const double position = std::min(x(tick.value), width_ - half - 1);
      svg_ +=
          fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>",
                      x(tick.value), bottom(), bottom() + 4);
      if (position - half < free_from) continue;
      free_from = position + half + 8;
      svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", position,
                          bottom() + 16, html_text(tick.label));
    }
    svg_ += fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                        width_ - kRight, bottom() + 30, html_text(plot_.x_title));
  }

  void draw_mark(const PlotMark& mark) {
    if (!(mark.x >= x_.low && mark.x <= x_.high)) return;
    const double position = x(mark.x);
    svg_ += fmt::format("<g class=\"mark {}\"><title>{}</title>", mark.kind, html_text(mark.text));
    if (mark.kind == "checkpoint") {
      svg_ += fmt::format("<path d=\"M{:.1f} {:.1f}l4 7h-8z\"/>", position, bottom() - 7);
    } else {
      svg_ += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", position,
                          kTop, bottom());
      svg_ += fmt::format("<path d=\"M{:.1f} {:.1f}l5 -8h-10z\"/>", position, kTop + 4);
    }
    svg_ += "</g>";
  }

  /// The columns in which a part of a curve is thinned: its share of the curve's.
  template <class Parts>
  std::size_t columns_of(const Parts& parts, std::size_t part) const {
    const auto all = static_cast<double>(width_);
    const double share =
        (parts[part].back().x - parts[part].front().x) / (parts.back().back().x - parts.front().front().x);
    return parts.size() == 1 ? static_cast<std::size_t>(width_)
                             : static_cast<std::size_t>(std::max(1.0, std::round(all * share)));
  }

  template <class Parts>
  std::string path_of(const Parts& parts) const {
    std::string path;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      char letter = 'M';
      for (const auto& point : thinned(parts[i], columns_of(parts, i)))
        path += fmt::format("{}{:.1f} {:.1f}", std::exchange(letter, 'L'), x(point.x), y(point.y));
    }
    return path;
  }

  template <class Parts>
  void draw_path(const Parts& parts, const char* kind, int style) {
    svg_ += fmt::format("<path class=\"{} c{}\" {}d=\"{}\"/>", kind, style % kPlotColors,
                        std::string_view(kind) == "raw" ? "" : dashes_of(style), path_of(parts));
  }

  void draw_raw(const PlotCurve& curve, const CurveParts& parts) {
    if (parts.half > 0) draw_path(parts.raw, "raw", curve.style);
  }

  /// Dots that lie on each other would hide the curve.
  bool has_room_for_dots(const PlotCurve& curve, const CurveParts& parts) const {
    constexpr double kLeastDistance = 6;
    if (!curve.has_dots || parts.raw.empty()) return false;
    const double width = x(parts.raw.back().back().x) - x(parts.raw.front().front().x);
    return width >= kLeastDistance * static_cast<double>(curve.points.size() - 1);
  }

  void draw_front(const PlotCurve& curve, const CurveParts& parts) {
    if (parts.half > 0) {
      draw_path(parts.smooth, "curve", curve.style);
    } else {
      draw_path(parts.raw, "curve", curve.style);
    }
    const bool has_dots = has_room_for_dots(curve, parts);
    dotted_.push_back(has_dots);
    for (const auto& part : parts.raw) {
      if (!has_dots && part.size() > 1) continue;
      for (const auto& point : thinned(part, 100))
        svg_ += fmt::format("<circle class=\"dot c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>",
                            curve.style % kPlotColors, x(point.x), y(point.y));
    }
    std::vector<PlotPoint> bad;
    for (const auto& point : parts.not_finite) bad.push_back({point.x, 0});
    for (const auto& point : thinned(bad, 50))
      svg_ +=
          fmt::format("<path class=\"bad\" d=\"M{:.1f} {:.1f}l6 6m0 -6l-6 6\"/>", x(point.x) - 3, kTop - 6);
  }

  /// The point of the curve that is nearest to x; null if none is near.
  const PlotPoint* nearest(const PlotCurve& curve, double position, double reach) const {
    const auto after = std::ranges::lower_bound(curve.points, position, {}, &PlotPoint::x);
    const PlotPoint* best = nullptr;
    for (const auto candidate : {after, after == curve.points.begin() ? after : std::prev(after)}) {
      if (candidate == curve.points.end() || std::abs(candidate->x - position) > reach) continue;
      if (best == nullptr || std::abs(candidate->x - position) < std::abs(best->x - position))
        best = &*candidate;
    }
    return best;
  }

  /// Where each part of a curve is lowest, highest and last; of many parts, where the curve is.
  static void add_extremes(const CurveParts& parts, std::vector<double>& positions) {
    constexpr std::size_t kFewParts = 100;
    std::vector<PlotPoint> extremes;
    for (const auto& part : parts.raw) {
      const auto [low, high] = std::ranges::minmax_element(part, {}, &PlotPoint::y);
      extremes.insert(extremes.end(), {*low, *high, part.back()});
    }
    if (parts.raw.size() > kFewParts) {
      const auto [low, high] = std::ranges::minmax(extremes, {}, &PlotPoint::y);
      extremes = {low, high, extremes.back()};
    }
    for (const auto& point : extremes) positions.push_back(point.x);
  }

  /// The x values at which values are shown: those of the curve with the most points, at most about one for 8
  /// pixels, and the extremes of every curve.
  std::vector<double> strip_positions() const {
    std::vector<double> positions;
    double last = -std::numeric_limits<double>::infinity();
    std::vector<double> all;
    for (const auto& curve : plot_.curves) {
      for (const auto& point : thinned(curve.points, static_cast<std::size_t>(width_))) {
        if (std::isfinite(point.x)) all.push_back(point.x);
      }
    }
    std::ranges::sort(all);
    for (const double position : all) {
      if (x(position) - last < 8) continue;
      last = x(position);
      positions.push_back(position);
    }
    for (const auto& parts : parts_) {
      add_extremes(parts, positions);
      if (positions.size() > 2000) break;
    }
    std::ranges::sort(positions);
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    return positions;
  }

  void draw_strips() {
    const auto positions = strip_positions();
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const double left = i == 0 ? left_ : (x(positions[i - 1]) + x(positions[i])) / 2;
      const double right =
          i + 1 == positions.size() ? width_ - kRight : (x(positions[i]) + x(positions[i + 1])) / 2;
      // What the strip covers, in the units of x.
      const double reach = std::max(right - left, 8.0) / (width_ - left_ - kRight) * (x_.high - x_.low);
      draw_strip(positions[i], left, right, reach);
    }
  }

  void draw_strip(double position, double left, double right, double reach) {
    std::string title = position_words(plot_.x_title, position), dots;
    for (const auto& curve : plot_.curves) {
      const PlotPoint* const point = nearest(curve, position, reach);
      if (point == nullptr) continue;
      const std::string at = point->x == position ? "" : fmt::format(" (at {})", number_words(point->x));
      title += fmt::format("\n{}: {}{}{}", curve.label, number_words(point->y),
                           plot_.y_unit.empty() ? "" : " " + plot_.y_unit, at);
      if (std::isfinite(point->y))
        dots += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>",
                            curve.style % kPlotColors, x(point->x), y(point->y));
    }
    svg_ += fmt::format(
        "<g class=\"strip\"><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"/>",
        html_text(title), left, kTop, std::max(right - left, 1.0), bottom() - kTop);
    svg_ += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>{3}</g>",
                        x(position), kTop, bottom(), dots);
  }

  const Plot& plot_;
  int width_, height_;
  const std::vector<CurveParts>& parts_;
  Axis x_, y_;
  double left_ = 0;
  std::vector<bool> dotted_;
  std::string svg_;
};

}  // namespace

std::string position_words(const std::string& x_title, double x) {
  const bool is_unit = x_title.find(' ') != std::string::npos;
  return is_unit ? fmt::format("{} {}", number_words(x), x_title)
                 : fmt::format("{} {}", x_title, number_words(x));
}

std::string dashes_of(int style) {
  constexpr std::array<const char*, 8> kDashes{"",    "7 3",  "2 3", "9 3 2 3",
                                               "4 2", "12 4", "1 2", "9 3 2 3 2 3"};
  const auto turn = static_cast<std::size_t>(style / kPlotColors);
  const char* const dashes = kDashes[(static_cast<std::size_t>(style) + turn) % kDashes.size()];
  return *dashes == '\0' ? "" : fmt::format("stroke-dasharray=\"{}\" ", dashes);
}

bool can_be_drawn(const Plot& plot) {
  return std::ranges::any_of(plot.curves, [](const PlotCurve& curve) {
    return std::ranges::any_of(curve.points, [](const PlotPoint& point) {
      return std::isfinite(point.x) && std::isfinite(point.y);
    });
  });
}

std::string legend_key(int style, bool has_dots) {
  return fmt::format(
      "<svg class=\"key\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"curve c{0}\" {1}d=\"M1 "
      "5h26\"/>{2}</svg>",
      style % kPlotColors, dashes_of(style),
      has_dots ? fmt::format("<circle class=\"dot c{}\" cx=\"14\" cy=\"5\" r=\"3\"/>", style % kPlotColors)
               : "");
}

std::vector<DrawnPlot> draw(const Plot& plot, const std::vector<PlotSize>& sizes) {
  const PlotParts parts = parts_of(plot);
  std::vector<DrawnPlot> drawn;
  for (const auto& size : sizes) drawn.push_back(PlotDrawing(plot, parts, size).draw());
  return drawn;
}

}  // namespace lockstep::launch
