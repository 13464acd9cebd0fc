#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/page_options.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// What a report says of a run in a few words. All *Local*.

/// The first and last, the lowest and the highest of the finite values; nothing if there are none.
struct ValueRange {
  LoggedPoint first, last, lowest, highest;
};
std::optional<ValueRange> range_of(const std::vector<LoggedPoint>& points);

/// "restart", "checkpoint" ..., which is also the class of its mark.
const char* name_of_event(RunEvent::Kind kind);

/// "finished", "running", or "stopped at step 120".
std::string state_words(const RunRecord& run, const PageOptions& options);
/// "320 of 320".
std::string steps_words(const RunRecord& run);
/// The seconds that the training took, by its own clock or by its logs; kUnknown.
double seconds_of_training(const RunRecord& run);

/// The evaluation metrics besides the loss of which the run has values, metric_for_best_model first.
std::vector<std::string> evaluation_metrics(const RunRecord& run);
/// Whether a smaller value of that metric is better, as TrainingArguments decides.
bool smaller_is_better(const RunRecord& run, const std::string& metric);

}  // namespace lockstep::launch
