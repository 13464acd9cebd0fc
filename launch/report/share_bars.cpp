#include "report/share_bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/time_shares.hpp"

namespace lockstep::launch {
namespace {

constexpr double kBarHeight = 24;

/// All parts, in the order of the first bar that has them.
std::vector<std::string> part_names(const std::vector<SpentTime>& bars) {
  std::vector<std::string> names;
  for (const auto& bar : bars) {
    for (const auto& share : bar.shares) {
      if (std::ranges::find(names, share.what) == names.end()) names.push_back(share.what);
    }
  }
  return names;
}

double seconds_of(const SpentTime& bar, const std::string& what) {
  const auto found = std::ranges::find(bar.shares, what, &TimeShare::what);
  return found == bar.shares.end() ? 0 : found->seconds;
}

/// The class of a part's color. The usual parts have the same one in every report.
std::string color_of(const std::vector<std::string>& names, std::size_t part) {
  static const std::map<std::string, const char*, std::less<>> kUsual{
      {"forward", "p0"},      {"backward", "p1"},  {kOverlapped, "p1 light"}, {kCommunicationAlone, "p3"},
      {kCommunication, "p3"}, {"optimizer", "p2"}, {"evaluation", "p4"},      {"loader", "p5"},
      {"checkpoint", "p7"},   {kTraining, "p6"},   {kBetweenRanges, "p8"}};
  const auto usual = kUsual.find(names[part]);
  return usual == kUsual.end() ? fmt::format("p{}", 4 + part % 4) : usual->second;
}

std::string bar_svg(const SpentTime& bar, const std::vector<std::string>& names) {
  constexpr double kWidth = 1000;
  std::string svg = fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
      kWidth, kBarHeight, html_text("how " + bar.who + " spent its time"));
  double position = 0;
  for (std::size_t part = 0; part < names.size(); ++part) {
    const double share = seconds_of(bar, names[part]) / bar.seconds;
    if (!(share > 0)) continue;
    svg += fmt::format(
        "<rect class=\"part {}\" x=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\"><title>{}</title></rect>",
        color_of(names, part), position * kWidth, share * kWidth, kBarHeight,
        html_text(fmt::format("{}: {}, {} of {}", bar.who, names[part], percent_words(share),
                              duration_words(bar.seconds))));
    position += share;
  }
  return svg + "</svg>";
}

}  // namespace

std::string share_bars(const std::vector<SpentTime>& bars) {
  const auto names = part_names(bars);
  std::string html = "<div class=\"bars\">";
  for (const auto& bar : bars)
    html += fmt::format("<div class=\"bar-name\">{}</div>{}", html_text(bar.who), bar_svg(bar, names));
  html += "</div><div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>Part</th>";
  for (const auto& bar : bars) html += fmt::format("<th>{}</th>", html_text(bar.who));
  html += "</tr></thead><tbody>";
  for (std::size_t part = 0; part < names.size(); ++part) {
    html += fmt::format(
        "<tr><th><svg class=\"box\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"part {}\" "
        "width=\"10\" height=\"10\"/></svg>{}</th>",
        color_of(names, part), html_text(names[part]));
    for (const auto& bar : bars)
      html += fmt::format("<td>{}</td>", percent_words(seconds_of(bar, names[part]) / bar.seconds));
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

}  // namespace lockstep::launch
