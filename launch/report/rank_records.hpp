#pragma once

#include <filesystem>
#include <vector>

#include "report/run_record.hpp"

namespace lockstep::launch {

/// Takes what a Trainer's ranks have written of themselves, ranks/rank-<rank>.json: hosts with their
/// hardware, how each rank's time was spent since the training began, and how much memory it had. Files of
/// ranks that the newest one does not count are of an earlier training with more ranks, and are left out.
/// What cannot be read becomes a problem of the run. *Local*.
void take_rank_records(const std::vector<std::filesystem::path>& paths, RunRecord& run);

}  // namespace lockstep::launch
