#pragma once

#include <string>

#include "lost_ranks.hpp"

namespace lockstep::testing {

/// A training by Trainer that loses ranks by `plan`. Checkpoints, log and metrics of trackers are in
/// OUT/trainer, OUT the plan's folder. Each rank writes the events that its callbacks hear of to
/// OUT/events.<rank>, and its processes to OUT/pids.<rank>. `pause`: if not 0, the
/// first of two trainings ends at that step, and the second goes on. Returns the program's exit code.
int train_by_trainer(const LossPlan& plan, std::int64_t pause);

}  // namespace lockstep::testing
