#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "process/worker_group.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// One start of the ranks of this node.
struct WorkerSpec {
  /// Round 0: nothing was started yet.
  Assignment place{.round = 0};
  /// Counts the starts with the same restart count: 0 is the first.
  int repeat = 0;
  /// Where the ranks find their store, and whether the coordinator's launcher serves it; else rank 0 does.
  net::HostPort master = {};
  bool agent_store = true;
  /// A private folder for the ranks' error files.
  std::string folder = {};
};

/// The folder of one rank's files: `<folder>/attempt_<n>/<local rank>`, where n is the restart count, with a
/// dot and a number behind it for each further start with that count.
std::filesystem::path rank_folder(const WorkerSpec& spec, int local_rank);
/// Where a rank writes there why it failed (torchrun's JSON).
std::string error_file(const WorkerSpec& spec, int local_rank);

/// The environment of one rank: `parent` and torchrun's contract over it
/// (docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables"). *Local*.
Environment worker_environment(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                               const Environment& parent);

/// What is executed for one rank. `${local_rank}` and `$local_rank` in the program's arguments become the
/// number. Unlike torchrun, `$$` stays two signs: `sh -c 'echo $$'` means what it says.
std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank);

/// Opens the files and pipes for one rank: `stdout.log` and `stderr.log` beside its error file. Throws
/// lockstep::Error that names the file.
WorkerOutput open_output(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                         LogForwarder& forwarder);

/// Adds the end of what the rank wrote to standard error, and the file that has all of it; nothing where that
/// went straight to the console. To be called after `LogForwarder::flush`.
void add_stderr_tail(ProcessFailure& failure, const LaunchConfig& config, const WorkerSpec& spec,
                     const LogForwarder& forwarder);

/// Writes, for each rank, what would be executed and the variables that would differ from `environment`.
void print_config(const LaunchConfig& config, const Environment& environment, std::ostream& out);

/// One line for the person who left OMP_NUM_THREADS unset, or an empty text.
std::string thread_notice(const LaunchConfig& config, const Environment& parent);

}  // namespace lockstep::launch
