#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/curves.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// What the x axis of plots counts.
enum class ReportAxis { step, epoch, time };
inline std::vector<std::string> option_words(ReportAxis) { return {"step", "epoch", "time"}; }

/// Translates steps of a run into x values: steps, epochs, or the time since its first log.
class RunAxis {
 public:
  /// `run` must outlive it. `unit` is that of axis_unit(), in seconds; only for times.
  RunAxis(const RunRecord& run, ReportAxis kind, double unit);

  /// Between steps of known epoch or time, it is interpolated. kUnknown if the run has none. *Local*.
  double x_of(double step) const;

  /// The values at their x, in ascending x, without those of which it is unknown. *Local*.
  std::vector<PlotPoint> points_of(const std::vector<LoggedPoint>& logged) const;

 private:
  using Known = std::vector<std::pair<double, double>>;

  /// `after` is the first known step that is not before this one.
  double x_at(double step, Known::const_iterator after) const;

  ReportAxis kind_;
  /// Steps and their x values, in ascending order.
  Known known_;
};

/// The title of the axis for these runs, and the unit of times in seconds: {"minutes", 60}. *Local*.
std::pair<std::string, double> axis_unit(const std::vector<RunRecord>& runs, ReportAxis kind);

}  // namespace lockstep::launch
