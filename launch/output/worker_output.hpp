#pragma once

#include <string>

#include "net/file_descriptor.hpp"
#include "output/output_relay.hpp"
#include "plan/launch_plan.hpp"
#include "plan/worker_environment.hpp"

namespace lockstep::launch {

/// What a rank's standard output and standard error are to be; empty: the launcher's own.
struct WorkerOutput {
  net::FileDescriptor out;
  net::FileDescriptor err;

  /// In the child, before exec: puts them in place. Async-signal-safe.
  void apply() const noexcept;
};

/// Opens the files and pipes for one rank: `stdout.log` and `stderr.log` beside its error file. Throws
/// lockstep::Error that names the file.
WorkerOutput open_output(const LaunchPlan& plan, const Attempt& attempt, int local_rank, OutputRelay& relay);

/// The end of what a rank wrote to standard error.
struct LastWords {
  /// The file that has all of it; empty: none.
  std::string file;
  /// Empty: nothing was written, or it went straight to the console.
  std::string lines;
};

/// To be asked after `OutputRelay::flush`, or all of it may not be there.
LastWords last_words(const LaunchPlan& plan, const Attempt& attempt, int local_rank,
                     const OutputRelay& relay);

}  // namespace lockstep::launch
