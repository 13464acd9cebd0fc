#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "job.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// The output of a run of checkpoint_probe.
struct Trace {
  /// Bits of the loss by rank and step. A step that ran several times must have had the same loss each time.
  std::map<int, std::map<int, std::string>> losses;
  /// The files of the last checkpoint, except its manifest.
  std::map<std::string, std::string> files;
};

/// Reads a run's folder; a test failure if a step ran twice with different losses.
Trace trace_of(const std::filesystem::path& out, int ranks);

/// Whether the run in `out` is the same, bit for bit, as the uninterrupted one.
::testing::AssertionResult same_training(const Trace& wanted, const Trace& found);

/// The output of an uninterrupted run of the probe's default training. Computed once per number of ranks.
const Trace& uninterrupted(int ranks);

/// The command line of the probe with its output in `folder`/out and its checkpoints in `folder`/checkpoints.
Words probe_in(const TemporaryFolder& folder, const Words& more = {});

}  // namespace lockstep::testing
