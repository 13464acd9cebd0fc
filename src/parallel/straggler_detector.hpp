#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/ddp_statistics.hpp"

namespace lockstep::parallel {

/// What one backward told about itself, in nanoseconds.
struct StepTimes {
  std::int64_t forward = 0;
  std::int64_t backward_compute = 0;
  std::int64_t communication = 0;
  std::int64_t hidden = 0;
};

/// Adds up the times of the steps, and compares the ranks now and then.
class StragglerDetector {
 public:
  StragglerDetector(const ProcessGroup& group, const StragglerOptions& options);

  /// At the begin of each synchronised step, also of one that is only shadowed; `last` is of the step before,
  /// where it is known. `compares` is off while the ranks may be in different steps. *Collective* every few
  /// steps.
  void step(const std::optional<StepTimes>& last, bool compares);

  /// This rank has waited for others for so long, outside backward.
  void waited(std::chrono::nanoseconds time) { waits_ += time.count(); }

  void add_to(DdpStatistics& statistics) const;

 private:
  void send_report();
  void take_report();
  std::string complaints();

  ProcessGroup group_;
  StragglerOptions options_;
  std::chrono::steady_clock::time_point begin_{};  // Of this report's steps.
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
