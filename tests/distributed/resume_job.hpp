#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "job.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// What checkpoint_probe left of a run.
struct Trace {
  /// By rank and step, the bits of the loss. A step that was done several times must have had the same each
  /// time.
  std::map<int, std::map<int, std::string>> losses;
  /// The files of the last checkpoint, but its manifest.
  std::map<std::string, std::string> files;
};

/// Reads a run's folder; a test failure when a step was done twice with different losses.
Trace trace_of(const std::filesystem::path& out, int ranks);

/// Whether the run in `out` has done the same, bit for bit, as the uninterrupted one.
::testing::AssertionResult same_training(const Trace& wanted, const Trace& found);

/// What a run of the probe's default training leaves that nobody interrupts. Made once for each number of
/// ranks.
const Trace& uninterrupted(int ranks);

/// The words that start the probe with its output in `folder`/out and its checkpoints in
/// `folder`/checkpoints.
Words probe_in(const TemporaryFolder& folder, const Words& more = {});

}  // namespace lockstep::testing
