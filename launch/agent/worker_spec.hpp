#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"
#include "logs/log_forwarder.hpp"
#include "process/worker_process.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// One start of the ranks of this node.
struct WorkerSpec {
  /// Round 0: nothing was started yet.
  Assignment assignment{.round = 0};
  /// Counts the starts with the same restart count; 0 is the first.
  int repeat = 0;
  /// Address of the ranks' store.
  net::HostPort master = {};
  /// Private folder of the ranks' error files.
  std::string folder = {};
  /// By local rank: the numbers of processes that replace others. The first process of a rank has 0.
  std::map<int, int> processes = {};
};

/// The same with that process of the rank.
WorkerSpec for_process(WorkerSpec spec, int local_rank, int process);

/// The folder of one rank's files: `<folder>/attempt_<n>/<local rank>`, where n is the restart count. `.<m>`
/// is appended to it for the m-th further start with the same count, and `.<m>` to the local rank for its
/// m-th further process.
std::filesystem::path rank_folder(const WorkerSpec& spec, int local_rank);
/// The file in it that tells why the rank failed (torchrun's JSON).
std::string error_file(const WorkerSpec& spec, int local_rank);

/// The environment of one rank: `parent`, overridden by torchrun's variables
/// (docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables"). *Local*.
Environment worker_environment(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                               const Environment& parent);

/// The command of one rank. `${local_rank}` and `$local_rank` are replaced by the number in the program's
/// arguments and, as in torchrun, in the name of a Python script or module. Unlike torchrun, `$$` is kept:
/// `sh -c 'echo $$'` works as written.
std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank);

/// Opens the files and pipes of one rank: `stdout.log` and `stderr.log` next to its error file. Throws
/// lockstep::Error that names the file.
WorkerOutput open_output(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                         LogForwarder& forwarder);

/// Adds the last lines of the rank's standard error, and the path of its log file. Adds nothing if standard
/// error went directly to the console. To be called after `LogForwarder::flush`.
void add_stderr_tail(ProcessFailure& failure, const LaunchConfig& config, const WorkerSpec& spec,
                     const LogForwarder& forwarder);

/// Prints the command of each rank, and the variables that differ from `environment`.
void print_config(const LaunchConfig& config, const Environment& environment, std::ostream& out);

/// A notice that OMP_NUM_THREADS is unset, or an empty text.
std::string thread_notice(const LaunchConfig& config, const Environment& parent);

}  // namespace lockstep::launch
