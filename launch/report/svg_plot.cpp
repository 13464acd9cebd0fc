// A plot is drawn from back to front: the grid, marks, raw values, smoothed curves and dots, and invisible
// strips that show the values below the pointer. All coordinates have one decimal: a tenth of a pixel.
#include "report/svg_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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
  std::vector<std::vector<PlotPoint>> raw, smooth;
  std::vector<PlotPoint> not_finite;
  std::size_t half = 0;
};

constexpr std::size_t kMostSmoothed = 20'000;

CurveParts parts_of(const PlotCurve& curve) {
  CurveParts parts;
  std::vector<PlotPoint> part;
  const auto end_part = [&] {
    if (!part.empty()) parts.raw.push_back(std::exchange(part, {}));
  };
  for (const auto& point : curve.points) {
    if (!std::isfinite(point.x)) continue;
    if (std::isfinite(point.y)) {
      part.push_back(point);
    } else {
      end_part();
      parts.not_finite.push_back(point);
    }
  }
  end_part();
  return parts;
}

/// On a logarithmic scale the mean of logarithms: it lies in the middle of what is seen.
void smooth_parts(CurveParts& parts, bool is_log) {
  if (parts.raw.empty()) return;
  auto scaled = parts.raw;
  for (auto& part : scaled) {
    for (auto& point : part) point.y = is_log ? std::log10(point.y) : point.y;
  }
  const auto longest = std::ranges::max_element(scaled, {}, [](const auto& each) { return each.size(); });
  // Far more points than a screen has columns are grouped before.
  const std::size_t size = 1 + longest->size() / kMostSmoothed;
  const std::size_t half = smoothing_of(size > 1 ? grouped(*longest, size) : *longest);
  parts.half = half * size;
  if (half == 0) return;
  for (const auto& part : scaled) {
    parts.smooth.push_back(smoothed(size > 1 ? grouped(part, size) : part, half));
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

Axis y_axis(const Range& range, Plot::Scale scale, int most) {
  const bool is_log = scale == Plot::Scale::automatic && range.low > 0 && range.high > kLogRatio * range.low;
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
  PlotDrawing(const Plot& plot, int width, int height) : plot_(plot), width_(width), height_(height) {
    for (const auto& curve : plot.curves) parts_.push_back(parts_of(curve));
    Range x, y;
    for (const auto& parts : parts_) {
      for (const auto& part : parts.raw) {
        for (const auto& point : part) {
          x.add(point.x);
          y.add(point.y);
        }
      }
    }
    for (const auto& parts : parts_) {
      for (const auto& point : parts.not_finite) x.add(point.x);
    }
    x_ = linear_axis(x.low > 0 && x.low < 0.1 * x.high ? 0 : x.low, x.high, std::max(2, width / 90));
    y_ = y_axis(y, plot.scale, std::max(3, height / 45));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const PlotCurve& curve = plot.curves[i];
      if (plot.smooths && curve.is_noisy && !curve.has_dots) smooth_parts(parts_[i], y_.is_log);
    }
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

  std::string path_of(const std::vector<std::vector<PlotPoint>>& parts) const {
    std::string path;
    for (const auto& part : parts) {
      char letter = 'M';
      for (const auto& point : thinned(part, static_cast<std::size_t>(width_))) {
        path += fmt::format("{}{:.1f} {:.1f}", std::exchange(letter, 'L'), x(point.x), y(point.y));
      }
    }
    return path;
  }

  void draw_path(const std::vector<std::vector<PlotPoint>>& parts, const char* kind, int style) {
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
    draw_path(parts.half > 0 ? parts.smooth : parts.raw, "curve", curve.style);
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
      for (const auto& part : parts.raw) {
        const auto [low, high] = std::ranges::minmax_element(part, {}, &PlotPoint::y);
        positions.push_back(low->x);
        positions.push_back(high->x);
        positions.push_back(part.back().x);
      }
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
  std::vector<CurveParts> parts_;
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

DrawnPlot draw(const Plot& plot, int width, int height) { return PlotDrawing(plot, width, height).draw(); }

}  // namespace lockstep::launch
