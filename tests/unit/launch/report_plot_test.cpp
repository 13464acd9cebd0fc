// The parts of a report that know no files: numbers in words, ticks, thinning, smoothing, drawing and
// escaping.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "report/curves.hpp"
#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/page_style.hpp"
#include "report/svg_plot.hpp"
#include "report/ticks.hpp"
#include "support/throws.hpp"

namespace lockstep::launch {
namespace {

using lockstep::testing::contains_all;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumberWords, HaveAboutFourDigits) {
  EXPECT_EQ(number_words(0.0132127), "0.01321");
  EXPECT_EQ(number_words(0.5), "0.5");
  EXPECT_EQ(number_words(4044.56), "4,044.6");
  EXPECT_EQ(number_words(1234567), "1,234,567");
  EXPECT_EQ(number_words(1.2e-7), "1.2e-7");
  EXPECT_EQ(number_words(-3.5e12), "-3.5e12");
  EXPECT_EQ(number_words(0), "0");
  EXPECT_EQ(number_words(std::nan("")), "NaN");
  EXPECT_EQ(number_words(-kInfinity), "minus infinity");
  EXPECT_EQ(count_words(10064), "10,064");
  EXPECT_EQ(count_words(-1234), "-1,234");
  EXPECT_EQ(percent_words(0.2951), "29.5 %");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
}

TEST(NumberWords, NameTimes) {
  EXPECT_EQ(duration_words(0.25), "250 ms");
  EXPECT_EQ(duration_words(0.0236), "23.6 ms");
  EXPECT_EQ(duration_words(2.488), "2.49 s");
  EXPECT_EQ(duration_words(200), "3 min 20 s");
  EXPECT_EQ(duration_words(3600), "1 h");
  EXPECT_EQ(duration_words(18'725), "5 h 12 min");
  EXPECT_EQ(duration_words(200'000), "2 days 8 h");
  EXPECT_EQ(duration_words(std::nan("")), "an unknown time");
  EXPECT_EQ(time_words(std::nan("")), "unknown");
  EXPECT_EQ(time_words(1e300), "unknown");
}

std::vector<std::string> labels_of(const Axis& axis) {
  std::vector<std::string> labels;
  for (const auto& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}

using Labels = std::vector<std::string>;

TEST(Ticks, AreAtRoundNumbers) {
  EXPECT_EQ(labels_of(linear_axis(0, 320, 6)), (Labels{"0", "100", "200", "300"}));
  EXPECT_EQ(labels_of(linear_axis(0.86, 0.99, 4)), (Labels{"0.90", "0.95"}));
  EXPECT_EQ(labels_of(linear_axis(0, 200'000, 4)), (Labels{"0", "50k", "100k", "150k", "200k"}));
  EXPECT_EQ(labels_of(linear_axis(-1, 1, 4)), (Labels{"-1.0", "-0.5", "0", "0.5", "1.0"}));
  EXPECT_EQ(labels_of(linear_axis(0, 5e-5, 5)), (Labels{"0", "1e-5", "2e-5", "3e-5", "4e-5", "5e-5"}));
  EXPECT_EQ(labels_of(log_axis(0.01, 200, 5)), (Labels{"0.01", "0.1", "1", "10", "100"}));
  EXPECT_EQ(labels_of(log_axis(2, 30, 6)), (Labels{"2", "5", "10", "20"}));
}

/// Whatever the range: a few finite ticks in ascending order, inside of it.
TEST(Ticks, ExistForEveryRange) {
  const double values[] = {
      0,     1,   -1,  0.1,    1e-300,   -1e-300, 1e300, -1e300, std::numeric_limits<double>::max(),
      1e-12, 5e9, 123, 123.01, 1 + 1e-15};
  for (const double one : values) {
    for (const double other : values) {
      const Axis axis = linear_axis(std::min(one, other), std::max(one, other), 5);
      ASSERT_LT(axis.low, axis.high);
      ASSERT_FALSE(axis.ticks.empty()) << one << " " << other;
      ASSERT_LE(axis.ticks.size(), 13U);
      for (std::size_t i = 0; i < axis.ticks.size(); ++i) {
        ASSERT_TRUE(std::isfinite(axis.fraction_of(axis.ticks[i].value))) << one << " " << other;
        if (i == 0) continue;
        ASSERT_GT(axis.ticks[i].value, axis.ticks[i - 1].value) << one << " " << other;
      }
      if (std::min(one, other) <= 0) continue;
      const Axis logarithmic = log_axis(std::min(one, other), std::max(one, other), 5);
      ASSERT_FALSE(logarithmic.ticks.empty()) << one << " " << other;
      for (const auto& tick : logarithmic.ticks)
        ASSERT_TRUE(std::isfinite(logarithmic.fraction_of(tick.value)));
    }
  }
}

TEST(Thinning, LosesNoExtreme) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 1'000'000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.37)});
  points[123'456].y = 1000;
  points[777'777].y = -1000;
  const auto kept = thinned(points, 500);
  EXPECT_LE(kept.size(), 2000U);
  const auto [low, high] = std::ranges::minmax(kept, {}, &PlotPoint::y);
  EXPECT_EQ(low.x, 777'777);
  EXPECT_EQ(high.x, 123'456);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 999'999);
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &PlotPoint::x));
}

TEST(Thinning, LeavesFewPointsAlone) {
  const std::vector<PlotPoint> points{{0, 1}, {0, 2}, {0, 3}};
  EXPECT_EQ(thinned(points, 100).size(), 3U);
  EXPECT_TRUE(thinned({}, 100).empty());
  // All at one place, as when a loss is logged again and again at the same step.
  const std::vector<PlotPoint> at_one_place(5000, PlotPoint{7, 1});
  EXPECT_LE(thinned(at_one_place, 100).size(), 4U);
}

TEST(Smoothing, KeepsLinesAndRemovesNoise) {
  std::vector<PlotPoint> line, noisy;
  for (int i = 0; i < 400; ++i) {
    line.push_back({static_cast<double>(i), 5.0 - 0.01 * i});
    noisy.push_back({static_cast<double>(i), 5.0 - 0.01 * i + (i % 2 == 0 ? 0.5 : -0.5)});
  }
  EXPECT_EQ(smoothing_of(line), 0U);
  EXPECT_EQ(smoothing_of(noisy), 10U);
  const auto flat = smoothed(line, 10), mean = smoothed(noisy, 10);
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_NEAR(flat[i].y, line[i].y, 1e-9) << i;
    EXPECT_NEAR(mean[i].y, line[i].y, 0.15) << i;
  }
  EXPECT_EQ(smoothed({{1, 2}}, 5).at(0).y, 2);
  EXPECT_TRUE(smoothed({}, 5).empty());
}

TEST(HtmlText, EscapesWhatHtmlReads) {
  EXPECT_EQ(html_text("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
  EXPECT_EQ(html_text("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(html_text(std::string_view("a\0b\x1b", 4)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(html_text("größe"), "größe");
  EXPECT_EQ(short_html_text("<<<<<<", 3), "&lt;&lt;&lt; ...");
}

Plot plot_of(std::vector<PlotPoint> points) {
  return {.title = "Loss",
          .x_title = "step",
          .y_unit = {},
          .curves = {{"training", 0, false, true, std::move(points)}},
          .marks = {}};
}

DrawnPlot drawing_of(const Plot& plot, int height = 200) { return draw(plot, {{400, height}}).front(); }

TEST(Drawing, ShowsValuesThatAreNotFiniteAsSigns) {
  const Plot plot = plot_of({{0, 1}, {1, 2}, {2, std::nan("")}, {3, kInfinity}, {4, 3}, {5, 2}});
  const std::string svg = drawing_of(plot).svg;
  std::size_t signs = 0;
  for (auto place = svg.find("class=\"bad\""); place != std::string::npos;
       place = svg.find("class=\"bad\"", place + 1))
    ++signs;
  EXPECT_EQ(signs, 2U);
  EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("inf "), std::string::npos) << svg;
  // The curve is interrupted between 1 and 4: it begins twice.
  const auto path = svg.substr(svg.find("class=\"curve"),
                               svg.find("/>", svg.find("class=\"curve")) - svg.find("class=\"curve"));
  EXPECT_EQ(std::ranges::count(path, 'M'), 2) << path;
  EXPECT_FALSE(can_be_drawn(plot_of({{0, std::nan("")}})));
  EXPECT_FALSE(can_be_drawn(plot_of({})));
}

/// As of a gradient norm in float16, or of a loss that is NaN again and again: a picture of a bounded size.
TEST(Drawing, StaysSmallHoweverOftenACurveIsInterrupted) {
  for (const int distance : {2, 3, 50, 500}) {
    std::vector<PlotPoint> points;
    for (int i = 0; i < 200'000; ++i)
      points.push_back({static_cast<double>(i), i % distance == 1 ? kInfinity : 2 + std::sin(i * 0.7)});
    points[100'000].y = 77'777;
    const std::string svg = drawing_of(plot_of(std::move(points))).svg;
    EXPECT_LT(svg.size(), 300'000U) << distance;
    EXPECT_TRUE(contains_all(svg, {"class=\"bad\"", "training: 77,777"})) << distance;
  }
}

TEST(Drawing, TakesALogarithmicScaleWhereItServes) {
  EXPECT_TRUE(drawing_of(plot_of({{0, 1}, {1, 0.001}})).is_log);
  EXPECT_FALSE(drawing_of(plot_of({{0, 1}, {1, 0.5}})).is_log);
  EXPECT_FALSE(drawing_of(plot_of({{0, 1000}, {1, 0}})).is_log);
  EXPECT_FALSE(drawing_of(plot_of({{0, 1000}, {1, -1}})).is_log);
}

/// Of a curve that falls by powers of ten, an arithmetic mean would be that of its beginning.
TEST(Drawing, SmoothsWhatIsSeen) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 200; ++i)
    points.push_back({static_cast<double>(i), std::pow(10.0, -i * 0.05 + (i % 2 == 0 ? 0.2 : -0.2))});
  const DrawnPlot drawn = drawing_of(plot_of(points), 240);
  EXPECT_TRUE(drawn.is_log);
  EXPECT_EQ(drawn.smoothed_over, 5U);
  const auto begin = drawn.svg.find(" d=\"", drawn.svg.find("class=\"curve")) + 4;
  const std::string path = drawn.svg.substr(begin, drawn.svg.find('"', begin) - begin);
  // The smoothed curve is a line: its middle lies between its ends.
  std::vector<PlotPoint> drawn_points;
  for (std::size_t place = 0; place < path.size();) {
    double x = 0, y = 0;
    int length = 0;
    ASSERT_EQ(std::sscanf(path.c_str() + place + 1, "%lf %lf%n", &x, &y, &length), 2);
    drawn_points.push_back({x, y});
    place += static_cast<std::size_t>(length) + 1;
  }
  ASSERT_GE(drawn_points.size(), 100U);
  const PlotPoint &first = drawn_points.front(), &middle = drawn_points[drawn_points.size() / 2],
                  &last = drawn_points.back();
  const double expected = first.y + (last.y - first.y) * (middle.x - first.x) / (last.x - first.x);
  EXPECT_NEAR(middle.y, expected, 2);
}

/// The means of groups hide the noise of their values, of which a line would be a broad band.
TEST(Drawing, SmoothsManyNoisyValues) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 1'000'000; ++i)
    points.push_back({static_cast<double>(i), 3 - 2e-6 * i + 0.1 * std::sin(i * 1.7)});
  auto smooth = points;
  for (auto& point : smooth) point.y = 3 - 2e-6 * point.x;
  EXPECT_GT(drawing_of(plot_of(points)).smoothed_over, 20'000U);
  EXPECT_EQ(drawing_of(plot_of(smooth)).smoothed_over, 0U);
}

TEST(Drawing, NamesPlaces) {
  EXPECT_EQ(position_words("step", 1200), "step 1,200");
  EXPECT_EQ(position_words("hours since the first log", 3.5), "3.5 hours since the first log");
}

TEST(Drawing, EscapesNames) {
  Plot plot = plot_of({{0, 1}, {1, 2}});
  plot.title = plot.x_title = "</title><script>alert(1)</script>\"";
  plot.curves[0].label = "<i>";
  plot.marks.push_back({0.5, "restart", "<u>\"&"});
  const std::string svg = drawing_of(plot).svg;
  for (const char* raw : {"<script", "<i>", "<u>", "\"&\""})
    EXPECT_EQ(svg.find(raw), std::string::npos) << raw;
  EXPECT_TRUE(contains_all(svg, {"&lt;i&gt;: 1", "&lt;u&gt;&quot;&amp;"})) << svg;
}

TEST(Drawing, GivesEachStyleItsOwnColorOrDashes) {
  std::set<std::pair<int, std::string>> looks;
  for (int style = 0; style < 32; ++style) looks.emplace(style % kPlotColors, dashes_of(style));
  EXPECT_EQ(looks.size(), 32U);
}

using Color = std::array<double, 3>;

/// The colors --c0 to --c7 in the order in which the style sheet has them: light, then dark. In linear light.
std::vector<Color> style_colors() {
  std::vector<Color> colors;
  const std::string style(page_style());
  for (auto place = style.find("--c"); place != std::string::npos; place = style.find("--c", place + 1)) {
    if (style[place + 4] != ':' || style[place + 5] != '#') continue;
    Color color{};
    for (std::size_t i = 0; i < 3; ++i) {
      const double part = std::stoi(style.substr(place + 6 + 2 * i, 2), nullptr, 16) / 255.0;
      color[i] = part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
    }
    colors.push_back(color);
  }
  return colors;
}

/// CIE L*a*b* of the color as it is seen through a matrix.
Color seen_through(const std::array<Color, 3>& matrix, const Color& color) {
  const auto times = [](const std::array<Color, 3>& rows, const Color& value) {
    Color result{};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) result[i] += rows[i][j] * value[j];
    }
    return result;
  };
  const Color xyz = times({{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}},
                          times(matrix, color));
  const auto root = [](double part) {
    return part > 0.008856 ? std::cbrt(part) : 7.787 * std::max(part, 0.0) + 16.0 / 116;
  };
  const double x = root(xyz[0] / 0.95047), y = root(xyz[1]), z = root(xyz[2] / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

/// With full color vision, and with protanopia, deuteranopia and tritanopia (Machado, Oliveira and Fernandes,
/// 2009).
TEST(Colors, CanBeToldApart) {
  const std::array<Color, 3> visions[] = {
      {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
      {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
      {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
      {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}}};
  const auto colors = style_colors();
  ASSERT_EQ(colors.size(), 2U * kPlotColors);
  for (const auto& vision : visions) {
    for (std::size_t i = 0; i < colors.size(); ++i) {
      for (std::size_t j = i + 1; j < colors.size() && j / kPlotColors == i / kPlotColors; ++j) {
        const Color one = seen_through(vision, colors[i]), other = seen_through(vision, colors[j]);
        EXPECT_GT(std::hypot(one[0] - other[0], one[1] - other[1], one[2] - other[2]), 15)
            << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::launch
