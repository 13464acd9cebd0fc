#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_files.hpp"
#include "report/run_record.hpp"

namespace lockstep::launch {

/// Reads the files of a Trainer, Lockstep's or transformers': the newest trainer_state.json, whose history is
/// returned, training_args.json, *_results.json, and the manifests of checkpoints. What cannot be read
/// becomes a problem of the run. *Local*. Does not throw for what it finds.
RunLog read_trainer_files(const RunFiles& files, RunRecord& run);

}  // namespace lockstep::launch
