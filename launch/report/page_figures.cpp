#include "report/page_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "report/html_text.hpp"
#include "report/number_words.hpp"
#include "report/run_rates.hpp"
#include "report/run_words.hpp"
#include "report/svg_plot.hpp"
#include "report/value_names.hpp"

namespace lockstep::launch {
namespace {

/// More plots than anybody looks at; their names are listed.
constexpr std::size_t kMostOthers = 40;
/// Up to so many values, each gets a dot; of noisy values, those that are not smoothed.
constexpr std::size_t kFewValues = 60, kFewNoisyValues = 29;
constexpr std::size_t kLongestLabel = 80;
/// Of more runs, only the first plot has the names.
constexpr std::size_t kMostNamedRuns = 4;

/// The values of a name for each run by its number, or any other points of a run.
using Points = std::function<const std::vector<LoggedPoint>&(std::size_t)>;

class FigureMaker {
 public:
  FigureMaker(const std::vector<RunRecord>& runs, const PageOptions& options)
      : runs_(runs), options_(options) {
    std::tie(x_title_, unit_) = axis_unit(runs, options.axis);
  }

  PageFigures make() {
    add_losses();
    add_rates_and_norms();
    add_evaluations();
    add_speed();
    add_memory();
    add_others();
    note_missing_axis();
    return std::move(figures_);
  }

 private:
  bool is_single() const { return runs_.size() == 1; }

  std::string label_of(std::size_t run, const std::string& what) const {
    const std::string name = short_html_text(runs_[run].name, kLongestLabel);
    return is_single() ? what : what.empty() ? name : name + ", " + what;
  }

  /// `style`: -1 for the run's own.
  void add_curve(Plot& plot, std::size_t run, const std::string& label,
                 const std::vector<LoggedPoint>& points, int style = -1, bool is_noisy = true) const {
    if (points.empty()) return;
    const RunAxis axis(runs_[run], options_.axis, unit_);
    PlotCurve curve{label, style < 0 ? static_cast<int>(run) : style,
                    points.size() <= (is_noisy ? kFewNoisyValues : kFewValues), is_noisy,
                    axis.points_of(points)};
    if (!curve.points.empty()) plot.curves.push_back(std::move(curve));
  }

  /// With everything, or only with restarts and failures within the training.
  void add_marks(Plot& plot, bool with_all) const {
    for (const auto& run : runs_) {
      const RunAxis axis(run, options_.axis, unit_);
      for (const auto& event : run.events) {
        const bool is_checkpoint = event.kind == RunEvent::Kind::checkpoint;
        if (!std::isfinite(event.step) || (!with_all && (is_checkpoint || event.step <= 0))) continue;
        const char* const kind = name_of_event(event.kind);
        plot.marks.push_back(
            {axis.x_of(event.step), kind, is_single() ? event.text : run.name + ": " + event.text});
      }
    }
  }

  std::string legend_of(const Plot& plot, const DrawnPlot& drawn, bool names_curves) const {
    std::string items;
    for (std::size_t i = 0; names_curves && i < plot.curves.size(); ++i)
      items += fmt::format("<li>{}{}</li>", legend_key(plot.curves[i].style, drawn.dotted[i]),
                           plot.curves[i].label);
    const std::pair<const char*, const char*> signs[] = {{"restart", "restart"},
                                                         {"recovery", "recovery"},
                                                         {"failure", "failure"},
                                                         {"checkpoint", "checkpoint"}};
    for (const auto& [kind, word] : signs) {
      if (std::ranges::find(plot.marks, kind, &PlotMark::kind) == plot.marks.end()) continue;
      const char* const path = std::string_view(kind) == "checkpoint" ? "M5 1l4 8h-8z" : "M5 9l4 -8h-8z";
      items += fmt::format(
          "<li><svg class=\"sign mark {}\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path "
          "d=\"{}\"/></svg>{}</li>",
          kind, path, word);
    }
    return items.empty() ? "" : fmt::format("<ul class=\"legend\">{}</ul>", items);
  }

  static std::string bad_values_note(const Plot& plot) {
    std::size_t bad = 0, all = 0;
    const PlotPoint* first = nullptr;
    for (const auto& curve : plot.curves) {
      all += curve.points.size();
      for (const auto& point : curve.points) {
        if (std::isfinite(point.y)) continue;
        if (++bad == 1) first = &point;
      }
    }
    if (bad == 0) return "";
    return fmt::format("{} of {} values are not finite (×), the first, {}, at {}.",
                       count_words(static_cast<double>(bad)), count_words(static_cast<double>(all)),
                       number_words(first->y), html_text(position_words(plot.x_title, first->x)));
  }

  std::string note_of(const Plot& plot, const DrawnPlot& drawn, const std::string& note,
                      bool is_repeated) const {
    std::vector<std::string> notes;
    if (drawn.smoothed_over > 0) {
      const char* const mean = drawn.is_log ? "geometric mean" : "mean";
      notes.push_back(
          is_single()
              ? fmt::format("Thin: every logged value. Thick: the {} over about {} neighbours on each side.",
                            mean, count_words(static_cast<double>(drawn.smoothed_over)))
              : fmt::format("Thin: every logged value. Thick: a moving {}.", mean));
    }
    if (const auto bad = bad_values_note(plot); !bad.empty()) notes.push_back(bad);
    if (!note.empty()) notes.push_back(html_text(note));
    if (is_repeated) notes.emplace_back("Colors and dashes as above.");
    return notes.empty() ? "" : fmt::format("<p class=\"note\">{}</p>", fmt::join(notes, " "));
  }

  /// One for wide screens, and one with larger letters for narrow ones and for paper, which need no values
  /// below a pointer.
  std::string figure(Plot& plot, bool is_large, const std::string& note = "") const {
    const std::string title = plot.title;
    plot.x_title = x_title_;
    plot.smooths = options_.smooths;
    // Many names are not repeated.
    const bool is_repeated = !is_large && !figures_.losses.empty() && runs_.size() > kMostNamedRuns;
    const bool names_curves = !is_repeated && (plot.curves.size() > 1 || !is_single());
    const auto drawn =
        is_large ? draw(plot, {{1070, 340}, {360, 240}}) : draw(plot, {{510, 250}, {360, 210}});
    const DrawnPlot &wide = drawn[0], &narrow = drawn[1];
    const std::string unit = plot.y_unit.empty() ? "" : " in " + plot.y_unit;
    std::string svgs = wide.svg + narrow.svg;
    const auto name = [&svgs](const char* kind, std::size_t from) {
      svgs.insert(svgs.find("class=\"plot", from) + 11, std::string(" ") + kind);
    };
    name("narrow", wide.svg.size());
    name("wide", 0);
    return fmt::format("<figure><figcaption>{} <small>{}{}</small></figcaption>{}{}{}</figure>",
                       html_text(title), html_text(unit),
                       wide.is_log ? (unit.empty() ? "logarithmic scale" : ", logarithmic scale") : "",
                       legend_of(plot, wide, names_curves), svgs, note_of(plot, wide, note, is_repeated));
  }

  void add_losses() {
    Plot plot{.title = "Loss", .x_title = {}, .y_unit = {}, .curves = {}, .marks = {}};
    for (std::size_t i = 0; i < runs_.size(); ++i)
      add_curve(plot, i, label_of(i, is_single() ? "training" : ""), runs_[i].points_of("loss"));
    if (is_single()) add_curve(plot, 0, "evaluation", runs_[0].points_of("eval_loss"), 1, false);
    if (!is_single()) plot.title = "Training loss";
    add_marks(plot, is_single());
    if (can_be_drawn(plot)) figures_.losses = figure(plot, true);
    note_missing("training loss", "loss", "");
    if (is_single())
      note_missing("evaluation loss", "eval_loss", "Trainer evaluates with --eval-strategy steps or epoch.");
  }

  /// Schedules of very different height need a logarithmic scale; that of one would hide its form.
  static bool highest_values_differ(const Plot& plot) {
    double lowest = std::numeric_limits<double>::infinity(), highest = 0;
    for (const auto& curve : plot.curves) {
      double top = 0;
      for (const auto& point : curve.points) top = std::max(top, point.y);
      lowest = std::min(lowest, top);
      highest = std::max(highest, top);
    }
    return highest > 20 * lowest;
  }

  struct Look {
    std::string title, unit;
    /// Values of single steps are noisy; those of a schedule or of a whole data set are not.
    bool is_noisy = true;
    bool is_schedule = false;
    std::string note = {};
  };

  void add_plot(std::string& html, const Look& look, const Points& points) {
    const auto& [title, unit, is_noisy, is_schedule, note] = look;
    Plot plot{.title = title, .x_title = {}, .y_unit = unit, .curves = {}, .marks = {}};
    for (std::size_t i = 0; i < runs_.size(); ++i)
      add_curve(plot, i, label_of(i, is_single() ? title : ""), points(i), -1, is_noisy);
    add_marks(plot, false);
    if (is_schedule && !highest_values_differ(plot)) plot.scale = Plot::Scale::linear;
    if (!can_be_drawn(plot)) return;
    html += figure(plot, false, note);
  }

  void add_value(std::string& html, const std::string& name) {
    const ValueKind kind = kind_of_value(name);
    const bool is_exact = kind == ValueKind::evaluation || kind == ValueKind::evaluation_loss;
    const bool is_schedule = kind == ValueKind::learning_rate || name.starts_with("lr/group_");
    add_plot(html, {title_of_value(name), unit_of_value(name), !is_exact && !is_schedule, is_schedule},
             [&](std::size_t run) -> const std::vector<LoggedPoint>& { return runs_[run].points_of(name); });
  }

  void add_rates_and_norms() {
    add_value(figures_.usual, "learning_rate");
    note_missing("learning rate", "learning_rate", "");
    add_value(figures_.usual, "grad_norm");
    note_missing("gradient norm", "grad_norm",
                 "Trainer logs it when gradients are clipped: --max-grad-norm above 0.");
  }

  /// Names of this kind of which some run has at least two values.
  std::set<std::string> names_of(ValueKind kind) const {
    std::set<std::string> names;
    for (const auto& run : runs_) {
      for (const auto& [name, series] : run.series) {
        if (kind_of_value(name) == kind && series.points.size() > 1) names.insert(name);
      }
    }
    return names;
  }

  void add_evaluations() {
    if (!is_single()) {
      add_value(figures_.usual, "eval_loss");
      note_missing("evaluation loss", "eval_loss", "Trainer evaluates with --eval-strategy steps or epoch.");
    }
    for (const auto& name : names_of(ValueKind::evaluation)) add_value(figures_.usual, name);
  }

  void add_speed() {
    const std::size_t before = figures_.usual.size();
    const bool in_steps = !std::ranges::all_of(runs_, has_sample_speed);
    std::vector<TrainingSpeed> speeds;
    for (const auto& run : runs_) speeds.push_back(speed_of(run, in_steps));
    add_plot(figures_.usual,
             {"Training speed", speeds.front().unit, true, false, is_single() ? speeds.front().note : ""},
             [&](std::size_t run) -> const std::vector<LoggedPoint>& { return speeds[run].points; });
    for (const auto& name : names_of(ValueKind::speed)) {
      if (name != "throughput/samples_per_second") add_value(figures_.usual, name);
    }
    if (figures_.usual.size() == before) {
      figures_.missing.emplace_back(
          "No speed over the steps: only the trackers' files have times (--report-to jsonl, csv or "
          "tensorboard).");
    }
  }

  void add_memory() {
    const auto names = names_of(ValueKind::memory);
    for (const auto& name : names) add_value(figures_.usual, name);
    if (names.empty())
      figures_.missing.emplace_back("No memory was logged: add MemoryCallback to the Trainer.");
  }

  void add_others() {
    const auto names = names_of(ValueKind::other);
    std::vector<std::string> hidden;
    std::size_t shown = 0;
    for (const auto& name : names) {
      if (is_learning_rate_again(name)) continue;
      if (shown++ < kMostOthers) {
        add_value(figures_.others, name);
      } else {
        hidden.push_back(name);
      }
    }
    if (hidden.empty()) return;
    figures_.missing.push_back(fmt::format(
        "{} more logged names are not drawn: {}.", count_words(static_cast<double>(hidden.size())),
        fmt::join(hidden.begin(),
                  hidden.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(hidden.size(), 20)),
                  ", ")));
  }

  /// LearningRateMonitor's rates, where all groups have the logged one.
  bool is_learning_rate_again(const std::string& name) const {
    if (!name.starts_with("lr/group_")) return false;
    return std::ranges::all_of(runs_, [&](const RunRecord& run) {
      return !run.points_of("learning_rate").empty() && !run.series.contains("lr/group_1");
    });
  }

  void note_missing(const std::string& what, const std::string& name, const std::string& advice) {
    std::vector<std::string> without;
    for (const auto& run : runs_) {
      if (run.points_of(name).empty()) without.push_back(run.name);
    }
    if (without.empty()) return;
    std::string text = fmt::format(
        "No {} was logged{}.", what,
        is_single() || without.size() == runs_.size() ? "" : fmt::format(" by {}", fmt::join(without, ", ")));
    if (!advice.empty()) text += " " + advice;
    figures_.missing.push_back(std::move(text));
  }

  void note_missing_axis() {
    if (options_.axis == ReportAxis::step) return;
    for (const auto& run : runs_) {
      if (std::isfinite(RunAxis(run, options_.axis, unit_).x_of(0))) continue;
      figures_.missing.push_back(fmt::format(
          "{}: no file says at what {} its values were logged, so no plot shows it: use --x-axis step.",
          run.name, option_words(options_.axis)[static_cast<std::size_t>(options_.axis)]));
    }
  }

  const std::vector<RunRecord>& runs_;
  const PageOptions& options_;
  std::string x_title_;
  double unit_ = 1;
  PageFigures figures_;
};

}  // namespace

PageFigures draw_figures(const std::vector<RunRecord>& runs, const PageOptions& options) {
  return FigureMaker(runs, options).make();
}

}  // namespace lockstep::launch
