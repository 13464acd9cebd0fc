#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/ddp_statistics.hpp"

namespace lockstep::parallel {

/// Measurements of one backward, in nanoseconds.
struct StepTimes {
  std::int64_t forward = 0;
  std::int64_t backward_compute = 0;
  std::int64_t communication = 0;
  std::int64_t hidden = 0;
};

/// Adds up the times of the steps, and compares the ranks periodically.
class StragglerDetector {
 public:
  StragglerDetector(const ProcessGroup& group, const StragglerOptions& options);

  /// Called at the beginning of each synchronized step, including steps of a rank that has finished in
  /// join(). `last` are the times of the previous step, if known. `compares` is off while the ranks may be in
  /// different steps. *Collective* when a report is due.
  void step(const std::optional<StepTimes>& last, bool compares);

  /// Adds time that this rank waited for others outside of backward.
  void waited(std::chrono::nanoseconds time) { waits_ += time.count(); }

  void add_to(DdpStatistics& statistics) const;
  const StragglerOptions& options() const { return options_; }

 private:
  void send_report();
  void take_report();
  std::string complaints();

  ProcessGroup group_;
  StragglerOptions options_;
  std::chrono::steady_clock::time_point begin_{};  // Beginning of this report's steps.
  std::int64_t steps_ = 0;
  StepTimes sums_;
  std::int64_t waits_ = 0;  // Since begin_.
  double compute_sum_ = 0;  // Up to begin_, in milliseconds.
  at::Tensor mine_, all_;
  std::optional<Work> sent_;
  std::vector<double> computes_;
  std::vector<int> slow_reports_;
};

}  // namespace lockstep::parallel
