#pragma once

#include <cstdint>
#include <string>

#include "lost_ranks.hpp"

namespace lockstep::testing {

struct ProbeTraining {
  /// If not 0, the first of two trainings ends at this step, and the second goes on.
  std::int64_t pause = 0;
  /// Rank 1 asks for the end after this step, as a signal would; -1: never.
  std::int64_t stop_at = -1;
  /// The training ends after so many seconds; 0: after its epochs.
  std::int64_t max_seconds = 0;
  /// What a callback does at the end of the third step that it must not do in a recoverable training:
  /// "communicate", "rate", "weight", "draw".
  std::string misuse = {};
};

/// A training by Trainer that loses ranks by `plan`. Checkpoints, log and metrics of trackers are in
/// OUT/trainer, OUT the plan's folder. Each rank writes the events that its callbacks hear of to
/// OUT/events.<rank>, and its processes to OUT/pids.<rank>. Returns the program's exit code.
int train_by_trainer(const LossPlan& plan, const ProbeTraining& how);

}  // namespace lockstep::testing
