#include "report/run_rates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "report/number_words.hpp"

namespace lockstep::launch {
namespace {

double argument_number(const RunRecord& run, const char* name) {
  const auto found = run.arguments.find(name);
  if (found == run.arguments.end()) return kUnknown;
  return parse_number<double>(found->second).value_or(kUnknown);
}

/// Samples of all ranks in a step; kUnknown if no file says.
double samples_per_step(const RunRecord& run) {
  if (run.samples_per_step && *run.samples_per_step > 0) return *run.samples_per_step;
  const double global = argument_number(run, "global_batch_size");
  if (global > 0) return global;
  const double each = argument_number(run, "per_device_train_batch_size") *
                      argument_number(run, "gradient_accumulation_steps");
  return run.world_size > 0 && each > 0 ? each * run.world_size : kUnknown;
}

/// The steps after which the training was restarted, in ascending order.
std::vector<double> restart_steps(const RunRecord& run) {
  std::vector<double> steps;
  for (const auto& event : run.events) {
    if (event.kind == RunEvent::Kind::restart && std::isfinite(event.step)) steps.push_back(event.step);
  }
  std::ranges::sort(steps);
  return steps;
}

const std::vector<LoggedPoint>& logged_speed(const RunRecord& run) {
  return run.points_of("throughput/samples_per_second");
}

}  // namespace

bool has_sample_speed(const RunRecord& run) {
  return !logged_speed(run).empty() || std::isfinite(samples_per_step(run));
}

TrainingSpeed speed_of(const RunRecord& run, bool in_steps) {
  if (!in_steps && !logged_speed(run).empty())
    return {logged_speed(run), "samples/s",
            "As ThroughputCallback logged it: evaluations and checkpoints count."};
  const double samples = samples_per_step(run);
  const bool knows_samples = !in_steps && std::isfinite(samples);
  TrainingSpeed speed{{}, knows_samples ? "samples/s" : "steps/s", ""};
  speed.note =
      knows_samples
          ? fmt::format("From the times of the logs, and {} in a step; logged evaluations do not count.",
                        counted(samples, "sample"))
          : "From the times of the logs; logged evaluations do not count.";
  const auto& loss = run.points_of("loss");
  const auto restarts = restart_steps(run);
  // The time from a log before a restart to one after it is not that of steps.
  const auto has_restart = [&](double from, double to) {
    const auto next = std::ranges::lower_bound(restarts, from);
    return next != restarts.end() && *next < to;
  };
  speed.points.reserve(std::min(loss.size(), run.clock.size()));
  auto moment = run.clock.begin();
  const RunRecord::StepTime* before = nullptr;
  for (const auto& point : loss) {
    while (moment != run.clock.end() && moment->step < point.step) ++moment;
    if (moment == run.clock.end()) break;
    if (moment->step != point.step) continue;
    const double seconds = before == nullptr ? 0 : moment->first - before->last;
    if (seconds > 0 && !has_restart(before->step, moment->step)) {
      const double steps = moment->step - before->step;
      speed.points.push_back({moment->step, steps * (knows_samples ? samples : 1) / seconds, moment->first});
    }
    before = &*moment;
  }
  return speed;
}

double mean_speed_of(const RunRecord& run) {
  const auto& logged = run.points_of("train_samples_per_second");
  return logged.empty() ? kUnknown : logged.back().value;
}

}  // namespace lockstep::launch
