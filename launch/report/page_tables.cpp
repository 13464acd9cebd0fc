#include "report/page_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/run_rates.hpp"
#include "report/run_words.hpp"
#include "report/svg_plot.hpp"
#include "report/value_names.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestCell = 300;
constexpr std::size_t kMostEvents = 60;
constexpr std::size_t kMostRows = 200;

std::string cell(const std::string& text) {
  return fmt::format("<td>{}</td>", short_html_text(text, kLongestCell));
}

std::string at_step(const LoggedPoint& point) {
  return fmt::format("{} (step {})", number_words(point.value), count_words(point.step));
}

std::string progress_sentence(const RunRecord& run, const PageOptions& options) {
  std::string text = run.has_ended ? "The training has finished: it made " : "The training has made ";
  if (!run.global_step) return run.has_ended ? "The training has finished." : "";
  text += fmt::format("{} steps", steps_words(run));
  std::vector<std::string> more;
  if (run.epoch) more.push_back(counted(std::round(*run.epoch * 100) / 100, "epoch"));
  if (run.epoch && *run.epoch != std::floor(*run.epoch))
    more.back() = number_words(std::round(*run.epoch * 100) / 100) + " epochs";
  if (run.samples_seen && *run.samples_seen > 0) more.push_back(counted(*run.samples_seen, "sample"));
  if (!more.empty()) text += fmt::format(" ({})", fmt::join(more, ", "));
  if (run.world_size > 0) text += " on " + counted(run.world_size, "rank");
  const double seconds = seconds_of_training(run);
  if (std::isfinite(seconds)) text += " in " + duration_words(seconds);
  text += ".";
  if (run.has_ended) return text;
  const double silence = options.now - run.last_change;
  if (!std::isfinite(silence)) return text;
  if (silence < kSilentSeconds)
    return text + fmt::format(" It was running when this page was written: its files changed {} before.",
                              duration_words(std::max(0.0, silence)));
  return text + fmt::format(" It did not finish, or hangs: its files have not changed since {}.",
                            time_words(run.last_change));
}

std::string loss_sentence(const RunRecord& run) {
  const auto loss = range_of(run.points_of("loss"));
  if (!loss) return run.points_of("loss").empty() ? "" : "No logged training loss is a finite number.";
  if (loss->first.step == loss->last.step)
    return fmt::format("The training loss was logged once, at step {}: {}.", count_words(loss->last.step),
                       number_words(loss->last.value));
  const char* const moved = loss->last.value < loss->first.value   ? "fell"
                            : loss->last.value > loss->first.value ? "rose"
                                                                   : "stayed the same,";
  return fmt::format("The training loss {} from {} at step {} to {} at step {}.", moved,
                     number_words(loss->first.value), count_words(loss->first.step),
                     number_words(loss->last.value), count_words(loss->last.step));
}

std::string evaluation_sentence(const RunRecord& run) {
  std::string text;
  if (const auto loss = range_of(run.points_of("eval_loss"))) {
    text = fmt::format("The evaluation loss was lowest at step {}: {}", count_words(loss->lowest.step),
                       number_words(loss->lowest.value));
    text += loss->last.value > loss->lowest.value
                ? fmt::format("; the last one is {}.", number_words(loss->last.value))
                : ".";
  }
  const auto metrics = evaluation_metrics(run);
  if (metrics.empty()) return text;
  const auto range = range_of(run.points_of(metrics.front()));
  if (!range) return text;
  const bool smaller = smaller_is_better(run, metrics.front());
  const LoggedPoint& best = smaller ? range->lowest : range->highest;
  std::string name = title_of_value(metrics.front());
  name.front() = 'e';
  return text + fmt::format("{}The {} was {} at step {}: {}.", text.empty() ? "" : " ", name,
                            smaller ? "lowest" : "highest", count_words(best.step), number_words(best.value));
}

std::string events_sentence(const RunRecord& run) {
  std::size_t restarts = 0, failures = 0, recoveries = 0;
  const RunEvent* last = nullptr;
  for (const auto& event : run.events) {
    failures += event.kind == RunEvent::Kind::failure ? 1 : 0;
    recoveries += event.kind == RunEvent::Kind::recovery ? 1 : 0;
    if (event.kind != RunEvent::Kind::restart) continue;
    ++restarts;
    last = &event;
  }
  std::string text;
  if (restarts == 1) text = fmt::format("It was restarted once: it {}.", last->text);
  if (restarts > 1)
    text = fmt::format("It was restarted {} times; the last time it {}.",
                       count_words(static_cast<double>(restarts)), last->text);
  if (!run.started_from.empty())
    text += fmt::format("{}Its checkpoints go back to {}.", text.empty() ? "" : " ", run.started_from);
  if (recoveries > 0)
    text += fmt::format("{}{} replaced while the others went on.", text.empty() ? "" : " ",
                        recoveries == 1 ? "A lost rank was"
                                        : count_words(static_cast<double>(recoveries)) + " lost ranks were");
  if (failures > 0)
    text += fmt::format("{}The launcher saw {}.", text.empty() ? "" : " ",
                        counted(static_cast<double>(failures), "failure"));
  return text;
}

std::string tile(const std::string& value, const std::string& what) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", html_text(value), html_text(what));
}

std::string run_key(std::size_t run) { return legend_key(static_cast<int>(run), false); }

/// The mean; empty if it is unknown.
std::string speed_words(const RunRecord& run) {
  const double mean = mean_speed_of(run);
  if (std::isfinite(mean) && mean > 0) return number_words(mean);
  if (!has_sample_speed(run)) return "";
  const auto speed = speed_of(run, false);
  if (speed.points.empty()) return "";
  double sum = 0;
  for (const auto& point : speed.points) sum += point.value;
  return number_words(sum / static_cast<double>(speed.points.size()));
}

/// A column of a comparison; the words are empty if they are not known.
struct ComparedColumn {
  std::string title;
  std::function<std::string(const RunRecord&)> words;
};

ComparedColumn best_column(const std::string& name, bool is_smaller) {
  return {fmt::format("{}, {}", title_of_value(name), is_smaller ? "lowest" : "highest"),
          [=](const RunRecord& run) -> std::string {
            const auto range = range_of(run.points_of(name));
            return range ? at_step(is_smaller ? range->lowest : range->highest) : "";
          }};
}

std::vector<ComparedColumn> compared_columns(const std::vector<RunRecord>& runs, const PageOptions& options) {
  std::vector<ComparedColumn> columns{
      {"State", [&](const RunRecord& run) { return state_words(run, options); }},
      {"Steps", [](const RunRecord& run) { return run.global_step ? steps_words(run) : ""; }},
      {"Training loss, last", [](const RunRecord& run) {
         const auto loss = range_of(run.points_of("loss"));
         return loss ? number_words(loss->last.value) : "";
       }}};
  columns.push_back(best_column("eval_loss", true));
  std::set<std::string> metrics;
  for (const auto& run : runs) {
    for (const auto& name : evaluation_metrics(run)) {
      if (metrics.size() == 3 || !metrics.insert(name).second) continue;
      columns.push_back(best_column(name, smaller_is_better(runs.front(), name)));
    }
  }
  columns.push_back({"Samples/s", speed_words});
  columns.push_back({"Time", [](const RunRecord& run) {
                       const double seconds = seconds_of_training(run);
                       return std::isfinite(seconds) ? duration_words(seconds) : "";
                     }});
  columns.push_back(
      {"Ranks", [](const RunRecord& run) { return run.world_size > 0 ? count_words(run.world_size) : ""; }});
  return columns;
}

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string facts_list(const Facts& facts) {
  std::string items;
  for (const auto& [name, value] : facts)
    items += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", html_text(name), short_html_text(value, 1000));
  return fmt::format("<dl class=\"arguments\">{}</dl>", items);
}

/// "1,024 MiB (rank 3)"; empty if no rank recorded it.
std::string most_memory_words(const RunRecord& run, double RankMemory::*kind) {
  const RankMemory* most = nullptr;
  for (const auto& one : run.memory) {
    if (std::isfinite(one.*kind) && (most == nullptr || one.*kind > most->*kind)) most = &one;
  }
  if (most == nullptr) return "";
  return fmt::format("{} MiB{}", count_words(std::round(most->*kind)),
                     run.memory.size() > 1 ? fmt::format(" (rank {})", most->rank) : "");
}

/// What the ranks recorded; of a host that did not, what it is now.
std::string hardware_lists(const RunRecord& run, const PageOptions& options) {
  std::string html;
  for (const auto& [host, facts] : run.hardware)
    html += fmt::format("<h3>{}</h3>{}", short_html_text(host, kLongestCell), facts_list(facts));
  const bool is_here = run.hosts.contains(options.host) && !run.hardware.contains(options.host);
  if (is_here) {
    Facts facts = options.host_facts;
    std::erase_if(facts, [](const auto& fact) { return fact.first == "host"; });
    html += fmt::format("<h3>{}</h3>{}", short_html_text(options.host, kLongestCell), facts_list(facts));
  }
  std::vector<std::string> unknown;
  for (const auto& host : run.hosts) {
    if (!run.hardware.contains(host) && !(is_here && host == options.host)) unknown.push_back(host);
  }
  if (!run.hardware.empty())
    html += "<p class=\"note\">The hardware is what the ranks found when they trained.</p>";
  if (is_here)
    html += fmt::format(
        "<p class=\"note\">The hardware of {} is that of the time at which this page was written.</p>",
        html_text(options.host));
  if (!unknown.empty() || run.hosts.empty())
    html +=
        fmt::format("<p class=\"note\">The hardware of {} is not recorded; lockstep env prints it there.</p>",
                    unknown.empty() ? "these hosts" : html_text(fmt::format("{}", fmt::join(unknown, ", "))));
  return html;
}

}  // namespace

std::string run_story(const RunRecord& run, const PageOptions& options) {
  std::string text;
  for (const auto& sentence : {progress_sentence(run, options), loss_sentence(run), evaluation_sentence(run),
                               events_sentence(run)}) {
    if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
  }
  return text.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>", html_text(text));
}

std::string run_tiles(const RunRecord& run) {
  std::string tiles;
  if (run.global_step) {
    const bool has_end = run.max_steps && *run.max_steps > 0;
    tiles += tile(count_words(*run.global_step), has_end ? "of " + counted(*run.max_steps, "step") : "steps");
  }
  if (const auto loss = range_of(run.points_of("loss")))
    tiles += tile(number_words(loss->last.value), "training loss, last");
  if (const auto loss = range_of(run.points_of("eval_loss")))
    tiles += tile(number_words(loss->lowest.value), "evaluation loss, lowest");
  auto metrics = evaluation_metrics(run);
  metrics.resize(std::min<std::size_t>(metrics.size(), 2));
  for (const auto& metric : metrics) {
    const auto range = range_of(run.points_of(metric));
    if (!range) continue;
    const bool smaller = smaller_is_better(run, metric);
    std::string name = title_of_value(metric);
    name.front() = 'e';
    tiles += tile(number_words((smaller ? range->lowest : range->highest).value),
                  name + (smaller ? ", lowest" : ", highest"));
  }
  if (const auto speed = speed_words(run); !speed.empty()) tiles += tile(speed, "samples per second");
  if (const double seconds = seconds_of_training(run); std::isfinite(seconds))
    tiles += tile(duration_words(seconds), "training time");
  if (run.world_size > 0) tiles += tile(count_words(run.world_size), run.world_size == 1 ? "rank" : "ranks");
  return tiles.empty() ? "" : fmt::format("<div class=\"tiles\">{}</div>", tiles);
}

std::string comparison_table(const std::vector<RunRecord>& runs, const PageOptions& options) {
  std::string head = "<th>Run</th>";
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < runs.size(); ++i)
    rows.push_back(fmt::format("<th>{}{}</th>", run_key(i), short_html_text(runs[i].name, kLongestCell)));
  for (const auto& [title, words] : compared_columns(runs, options)) {
    std::vector<std::string> cells;
    for (const auto& run : runs) cells.push_back(words(run));
    if (std::ranges::all_of(cells, &std::string::empty)) continue;
    head += fmt::format("<th>{}</th>", html_text(title));
    for (std::size_t i = 0; i < runs.size(); ++i) rows[i] += cell(cells[i].empty() ? "unknown" : cells[i]);
  }
  std::string body;
  for (const auto& row : rows) body += "<tr>" + row + "</tr>";
  return fmt::format(
      "<div class=\"scroll\"><table "
      "class=\"numbers\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
      head, body);
}

std::string differing_arguments(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const auto& run : runs) {
    for (const auto& [name, value] : run.arguments) names.insert(name);
  }
  // Each training has its own folders.
  for (const char* folder : {"output_dir", "logging_dir"}) names.erase(folder);
  std::string rows;
  for (const auto& name : names) {
    std::set<std::string> values;
    std::string cells;
    for (const auto& run : runs) {
      const auto found = run.arguments.find(name);
      if (found != run.arguments.end()) values.insert(found->second);
      cells += cell(found == run.arguments.end() ? "not recorded"
                    : found->second.empty()      ? "empty"
                                                 : found->second);
    }
    if (values.size() > 1)
      rows += fmt::format("<tr><th>{}</th>{}</tr>", short_html_text(name, kLongestCell), cells);
  }
  if (rows.empty())
    return names.empty() ? "<p>No arguments were recorded.</p>"
                         : "<p>All recorded arguments are the same.</p>";
  std::string head;
  for (std::size_t i = 0; i < runs.size(); ++i)
    head += fmt::format("<th>{}{}</th>", run_key(i), short_html_text(runs[i].name, kLongestCell));
  return fmt::format(
      "<div class=\"scroll\"><table "
      "class=\"different\"><thead><tr><th>Argument</th>{}</tr></thead><tbody>{}</tbody></table></div>",
      head, rows);
}

std::string values_table(const std::vector<RunRecord>& runs) {
  std::string rows;
  std::size_t count = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [name, series] : runs[i].series) {
      if (name == "epoch" || ++count > kMostRows) continue;
      const auto range = range_of(series.points);
      const std::string unit = name.ends_with("_per_second") ? "" : unit_of_value(name);
      rows +=
          fmt::format("<tr><th>{}{}{}</th>", runs.size() > 1 ? run_key(i) : "",
                      short_html_text(title_of_value(name), kLongestCell), unit.empty() ? "" : " in " + unit);
      rows += cell(count_words(static_cast<double>(series.points.size())));
      rows += range ? cell(number_words(range->first.value)) + cell(number_words(range->last.value)) +
                          cell(at_step(range->lowest)) + cell(at_step(range->highest))
                    : "<td>not finite</td><td></td><td></td><td></td>";
      rows += "</tr>";
    }
  }
  if (rows.empty()) return "";
  const std::string note = count > kMostRows
                               ? fmt::format("<p class=\"note\">{} more are not listed.</p>",
                                             count_words(static_cast<double>(count - kMostRows)))
                               : "";
  return fmt::format(
      "<div class=\"scroll\"><table "
      "class=\"numbers\"><thead><tr><th>Value</th><th>Logs</th><th>First</th><th>Last</th>"
      "<th>Lowest</th><th>Highest</th></tr></thead>"
      "<tbody>{}</tbody></table></div>{}",
      rows, note);
}

std::string operators_table(const RunRecord& run) {
  if (run.operators.empty()) return "";
  std::string rows;
  for (const auto& one : run.operators) {
    rows += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
                        short_html_text(one.name, 120), count_words(one.calls), duration_words(one.seconds),
                        percent_words(one.seconds / run.operators_seconds));
  }
  return fmt::format(
      "<div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>Operator</th><th>Calls</th><th>Own "
      "time</th>"
      "<th>Share</th></tr></thead><tbody>{}</tbody></table></div><p class=\"note\">{}</p>",
      rows, html_text(run.operators_note));
}

std::string events_table(const RunRecord& run) {
  if (run.events.empty()) return "";
  std::string rows;
  std::size_t count = 0;
  for (const auto& event : run.events) {
    if (++count > kMostEvents) break;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
                        std::isfinite(event.time) ? time_words(event.time) : "unknown",
                        name_of_event(event.kind), std::isfinite(event.step) ? count_words(event.step) : "",
                        short_html_text(event.text, 1000));
  }
  const std::string note =
      run.events.size() > kMostEvents
          ? fmt::format("<p class=\"note\">{} later ones are not listed.</p>",
                        count_words(static_cast<double>(run.events.size() - kMostEvents)))
          : "";
  return fmt::format(
      "<div "
      "class=\"scroll\"><table><thead><tr><th>Time</th><th>Event</th><th>Step</th><th>Details</th></tr></"
      "thead><tbody>{}</tbody></table></div>{}",
      rows, note);
}

std::string arguments_list(const RunRecord& run) {
  if (run.arguments.empty())
    return "<p>No arguments were recorded: neither training_args.json, which checkpoints have, nor a "
           "tracker's file has them.</p>";
  std::string items;
  for (const auto& [name, value] : run.arguments) {
    items += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", short_html_text(name, kLongestCell),
                         value.empty() ? "empty" : short_html_text(value, kLongestCell));
  }
  return fmt::format("<dl class=\"arguments\">{}</dl><p class=\"note\">From {}.</p>", items,
                     html_text(run.arguments_source));
}

std::string machine_list(const RunRecord& run, const PageOptions& options) {
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("hosts",
                     run.hosts.empty() ? "not recorded" : fmt::format("{}", fmt::join(run.hosts, ", ")));
  facts.emplace_back("ranks", run.world_size > 0 ? count_words(run.world_size) : "not recorded");
  const std::string memory = most_memory_words(run, &RankMemory::host_mib);
  facts.emplace_back("most memory of a rank", memory.empty() ? "not recorded" : memory);
  if (const auto words = most_memory_words(run, &RankMemory::device_mib); !words.empty())
    facts.emplace_back("most memory of a rank's tensors on its GPU", words);
  facts.emplace_back("Lockstep", run.lockstep_version.empty() ? "not recorded" : run.lockstep_version);
  facts.emplace_back("LibTorch", run.libtorch_version.empty() ? "not recorded" : run.libtorch_version);
  return facts_list(facts) + hardware_lists(run, options);
}

}  // namespace lockstep::launch
