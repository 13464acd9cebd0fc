#include "report/report_page.hpp"

#include <fmt/format.h>

#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/page_figures.hpp"
#include "report/page_style.hpp"
#include "report/page_tables.hpp"
#include "report/share_bars.hpp"
#include "report/time_shares.hpp"

namespace lockstep::launch {
namespace {

/// More bars than that cannot be compared: the mean of all ranks is shown.
constexpr std::size_t kMostBars = 16;

std::string section(const std::string& title, const std::string& html) {
  return html.empty() ? "" : fmt::format("<section><h2>{}</h2>{}</section>", html_text(title), html);
}

std::string bullets(const std::vector<std::string>& texts) {
  if (texts.empty()) return "";
  std::string items;
  for (const auto& text : texts) items += fmt::format("<li>{}</li>", short_html_text(text, 2000));
  return fmt::format("<ul class=\"plain\">{}</ul>", items);
}

std::string title_of(const std::vector<RunRecord>& runs) {
  if (runs.size() == 1) return runs.front().name;
  return fmt::format("{} trainings compared", runs.size());
}

std::string time_section(const std::vector<RunRecord>& runs) {
  std::vector<SpentTime> bars;
  std::string notes;
  for (const auto& run : runs) {
    if (run.spent.empty()) continue;
    if (runs.size() == 1 && run.spent.size() <= kMostBars) {
      bars = run.spent;
    } else {
      bars.push_back(mean_of(run.spent));
      if (runs.size() > 1) bars.back().who = run.name;
    }
    notes += fmt::format("<p class=\"note\">{}{}</p>", runs.size() > 1 ? html_text(run.name) + ": " : "",
                         html_text(run.spent_note));
  }
  if (bars.empty()) {
    return "<p>How the time was spent is not recorded. With LOCKSTEP_TRACE_DIR set to a folder in the output "
           "folder, the ranks of the next training record "
           "forward, backward, communication and the optimizer there.</p>";
  }
  return share_bars(bars) + notes;
}

std::string per_run(const std::vector<RunRecord>& runs,
                    const std::function<std::string(const RunRecord&)>& part) {
  std::string html;
  for (const auto& run : runs) {
    const std::string one = part(run);
    if (one.empty()) continue;
    if (runs.size() > 1) html += fmt::format("<h3>{}</h3>", html_text(run.name));
    html += one;
  }
  return html;
}

std::string sources_of(const RunRecord& run) {
  return fmt::format("<p>{}: {}</p>", html_text(run.folder.string()),
                     html_text(fmt::format("{}", fmt::join(run.sources, ", "))));
}

std::string head(const std::vector<RunRecord>& runs, const PageOptions& options) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">";
  // Nothing is loaded and nothing is run, whatever a name in the files might hold.
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">";
  if (options.refresh_seconds > 0)
    html += fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">", options.refresh_seconds);
  return html + fmt::format("<title>{}</title><style>{}</style></head>\n<body>", html_text(title_of(runs)),
                            page_style());
}

}  // namespace

std::string report_page(const std::vector<RunRecord>& runs, const PageOptions& options) {
  const PageFigures figures = draw_figures(runs, options);
  std::string html = head(runs, options);
  html += fmt::format("<header><h1>{}</h1><p class=\"quiet\">{}</p></header>", html_text(title_of(runs)),
                      runs.size() == 1 ? html_text(runs.front().folder.string()) : "by lockstep report");
  if (runs.size() == 1) {
    html += run_story(runs.front(), options) + run_tiles(runs.front());
  } else {
    html += comparison_table(runs, options) + section("Arguments that differ", differing_arguments(runs));
  }
  std::string problems;
  for (const auto& run : runs) problems += bullets(run.problems);
  if (!problems.empty())
    html += fmt::format("<div class=\"warning\"><p>Not everything could be read:</p>{}</div>", problems);
  html += section(
      "Curves",
      figures.losses +
          (figures.usual.empty() ? "" : fmt::format("<div class=\"grid\">{}</div>", figures.usual)) +
          (figures.missing.empty() ? ""
                                   : fmt::format("<div class=\"note\">{}</div>", bullets(figures.missing))));
  html += section("Where the time went", time_section(runs));
  html += section("Operators", per_run(runs, operators_table));
  html += section("Restarts and checkpoints", per_run(runs, events_table));
  html += section("Other logged values",
                  figures.others.empty() ? "" : fmt::format("<div class=\"grid\">{}</div>", figures.others));
  html += section("All values", values_table(runs));
  html += section("Machine", per_run(runs, [&](const RunRecord& run) { return machine_list(run, options); }));
  html += section("Arguments", per_run(runs, arguments_list));
  html += section("Files", per_run(runs, sources_of));
  html += fmt::format("<footer>Written by lockstep report{} on {}, {}.</footer></body></html>\n",
                      options.lockstep_version.empty() ? "" : " " + options.lockstep_version,
                      html_text(options.host), time_words(options.now));
  return html;
}

}  // namespace lockstep::launch
