#include "report/run_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/number_words.hpp"
#include "report/value_names.hpp"

namespace lockstep::launch {
namespace {

std::string best_metric_argument(const RunRecord& run) {
  const auto found = run.arguments.find("metric_for_best_model");
  if (found == run.arguments.end() || found->second == "none" || found->second.empty()) return "";
  return found->second.starts_with("eval_") ? found->second : "eval_" + found->second;
}

}  // namespace

std::optional<ValueRange> range_of(const std::vector<LoggedPoint>& points) {
  std::optional<ValueRange> range;
  for (const auto& point : points) {
    if (!std::isfinite(point.value)) continue;
    if (!range) range = ValueRange{point, point, point, point};
    range->last = point;
    if (point.value < range->lowest.value) range->lowest = point;
    if (point.value > range->highest.value) range->highest = point;
  }
  return range;
}

const char* name_of_event(RunEvent::Kind kind) {
  switch (kind) {
    case RunEvent::Kind::restart:
      return "restart";
    case RunEvent::Kind::recovery:
      return "recovery";
    case RunEvent::Kind::failure:
      return "failure";
    case RunEvent::Kind::checkpoint:
      break;
  }
  return "checkpoint";
}

std::string state_words(const RunRecord& run, const PageOptions& options) {
  if (run.has_ended) return "finished";
  if (std::isfinite(run.last_change) && options.now - run.last_change < kSilentSeconds) return "running";
  return run.global_step ? fmt::format("stopped at step {}", count_words(*run.global_step)) : "stopped";
}

std::string steps_words(const RunRecord& run) {
  if (!run.global_step) return "unknown";
  if (!run.max_steps || *run.max_steps <= 0) return count_words(*run.global_step);
  return fmt::format("{} of {}", count_words(*run.global_step), count_words(*run.max_steps));
}

double seconds_of_training(const RunRecord& run) {
  const auto& runtime = run.points_of("train_runtime");
  const bool has_restarts = std::ranges::any_of(
      run.events, [](const RunEvent& event) { return event.kind == RunEvent::Kind::restart; });
  if (run.train_seconds && *run.train_seconds > 0 && (has_restarts || runtime.empty()))
    return *run.train_seconds;
  const double clock = run.clock.size() < 2 ? kUnknown : run.clock.back().last - run.clock.front().first;
  const double seconds = runtime.empty() ? clock : runtime.back().value;
  return seconds >= 0 ? seconds : kUnknown;
}

std::vector<std::string> evaluation_metrics(const RunRecord& run) {
  std::vector<std::string> metrics;
  for (const auto& [name, series] : run.series) {
    if (kind_of_value(name) == ValueKind::evaluation) metrics.push_back(name);
  }
  const std::string best = best_metric_argument(run);
  std::ranges::stable_partition(metrics, [&](const std::string& name) { return name == best; });
  return metrics;
}

bool smaller_is_better(const RunRecord& run, const std::string& metric) {
  const auto greater = run.arguments.find("greater_is_better");
  if (metric == best_metric_argument(run) && greater != run.arguments.end() && greater->second != "none")
    return greater->second == "false";
  return metric.ends_with("loss") || metric.ends_with("perplexity") || metric.ends_with("error") ||
         metric.ends_with("mse") || metric.ends_with("mae");
}

}  // namespace lockstep::launch
