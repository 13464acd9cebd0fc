#include "report/run_axis.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::launch {

RunAxis::RunAxis(const RunRecord& run, ReportAxis kind, double unit) : kind_(kind) {
  if (kind == ReportAxis::epoch) {
    for (const auto& point : run.points_of("epoch")) {
      if (std::isfinite(point.value)) known_.emplace_back(point.step, point.value);
    }
  }
  if (kind == ReportAxis::time) {
    for (const auto& moment : run.clock)
      known_.emplace_back(moment.step, (moment.first - run.clock.front().first) / unit);
  }
}

double RunAxis::x_at(double step, Known::const_iterator after) const {
  if (kind_ == ReportAxis::step) return step;
  if (known_.empty()) return kUnknown;
  if (after == known_.end()) return known_.back().second;
  if (after->first == step || after == known_.begin()) return after->second;
  const auto before = std::prev(after);
  const double part = (step - before->first) / (after->first - before->first);
  return before->second + part * (after->second - before->second);
}

double RunAxis::x_of(double step) const {
  return x_at(step, std::ranges::lower_bound(known_, step, {}, &Known::value_type::first));
}

std::vector<PlotPoint> RunAxis::points_of(const std::vector<LoggedPoint>& logged) const {
  std::vector<PlotPoint> points;
  points.reserve(logged.size());
  auto after = known_.begin();
  for (const auto& point : logged) {
    // They are in ascending steps: nothing is searched.
    while (after != known_.end() && after->first < point.step) ++after;
    const double x = x_at(point.step, after);
    if (std::isfinite(x)) points.push_back({x, point.value});
  }
  // A training that was resumed elsewhere may have times that go back.
  if (!std::ranges::is_sorted(points, {}, &PlotPoint::x)) std::ranges::stable_sort(points, {}, &PlotPoint::x);
  return points;
}

std::pair<std::string, double> axis_unit(const std::vector<RunRecord>& runs, ReportAxis kind) {
  if (kind == ReportAxis::step) return {"step", 1};
  if (kind == ReportAxis::epoch) return {"epoch", 1};
  double longest = 0;
  for (const auto& run : runs) {
    if (!run.clock.empty()) longest = std::max(longest, run.clock.back().last - run.clock.front().first);
  }
  if (longest < 180) return {"seconds since the first log", 1};
  if (longest < 3 * 3600) return {"minutes since the first log", 60};
  if (longest < 96 * 3600) return {"hours since the first log", 3600};
  return {"days since the first log", 86400};
}

}  // namespace lockstep::launch
