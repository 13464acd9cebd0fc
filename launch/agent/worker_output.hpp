#pragma once

#include <string>

#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "logs/log_forwarder.hpp"
#include "process/worker_group.hpp"

namespace lockstep::launch {

/// Opens the files and pipes for one rank: `stdout.log` and `stderr.log` beside its error file. Throws
/// lockstep::Error that names the file.
WorkerOutput open_output(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                         LogForwarder& forwarder);

/// The end of what a rank wrote to standard error.
struct StderrTail {
  /// The file that has all of it; empty: none.
  std::string file;
  /// Empty: nothing was written, or it went straight to the console.
  std::string lines;
};

/// To be asked after `LogForwarder::flush`, or all of it may not be there.
StderrTail stderr_tail(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                       const LogForwarder& forwarder);

}  // namespace lockstep::launch
