#pragma once

#include <string>

#include "report/run_record.hpp"

namespace lockstep::launch {

/// The speed of a training over its steps.
struct TrainingSpeed {
  std::vector<LoggedPoint> points;
  /// "samples/s" or "steps/s".
  std::string unit;
  /// Where it comes from, as a sentence.
  std::string note;
};

/// As ThroughputCallback logged it, otherwise from the times at which losses were logged and the samples of a
/// step: without evaluations that were logged, and without pauses of restarts. In steps/s with `in_steps`,
/// and where no file says how many samples a step has. Empty if no file has times. *Local*.
TrainingSpeed speed_of(const RunRecord& run, bool in_steps);

/// Whether speed_of() knows samples: without `in_steps` it is in samples/s then. *Local*.
bool has_sample_speed(const RunRecord& run);

/// The mean over the training that its end logged (train_samples_per_second); kUnknown if there is none.
/// *Local*.
double mean_speed_of(const RunRecord& run);

}  // namespace lockstep::launch
