#pragma once

#include <cstdint>
#include <string>

#include "lost_ranks.hpp"

namespace lockstep::testing {

struct PlainTraining {
  std::int64_t epochs = 2;
  std::int64_t step_time = 0;  // Milliseconds.
  /// What the program does wrong: "early", it communicates between the optimizer's step and the commit of
  /// step 10, in which rank 1 is lost; "count", it counts its epochs itself.
  std::string misuse = {};
};

/// A training without an Accelerator that loses ranks by `plan`: a plain loop over a DistributedDataParallel,
/// with an optimizer of LibTorch. Each rank writes its losses to OUT/losses.<rank>, its processes to
/// OUT/pids.<rank>, and each change of the group ("<generation> <ranks> after <step>") to OUT/changes.<rank>,
/// OUT the plan's folder; rank 0 writes the state in the end to OUT/final. Returns the program's exit code.
int train_by_plain_loop(const LossPlan& plan, const PlainTraining& how);

}  // namespace lockstep::testing
