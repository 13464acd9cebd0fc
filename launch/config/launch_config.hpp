#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/output_config.hpp"
#include "config/rendezvous_config.hpp"
#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

/// How much the launcher says: `info` also what it is going to do, `error` no notices. Failures are always
/// reported.
enum class LogLevel { info, warning, error };

/// The level of the variable LOGLEVEL, in Python's names or numbers, as for torchrun; warning when it is
/// unset. A value that is none of them is told in `notices`.
LogLevel log_level(const Environment& environment, std::vector<std::string>& notices);

/// What is to be started, worked out from the command line: every default is filled in.
struct LaunchConfig : RendezvousConfig, OutputConfig {
  /// The words to execute, the interpreter included.
  std::vector<std::string> command;
  /// Where the program's own arguments begin in `command`: `${local_rank}` is replaced from here on.
  std::size_t first_argument = 1;
  /// How the program is called in messages.
  std::string program;
  /// The Python script that the ranks run; empty: none. Looked for once, before they start.
  std::string script;
  int local_world_size = 1;
  std::string role = "default";
  std::string run_id = "none";
  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// One for each rank of this node, or none: they are not bound.
  std::vector<CpuBinding> bindings;
  /// 0: ranks that make no progress are only named.
  std::chrono::milliseconds heartbeat_timeout{0};
  std::chrono::milliseconds restart_backoff{1'000};
  /// The signals that end the job, and how they were written (TORCHELASTIC_SIGNALS_TO_HANDLE).
  std::vector<int> end_signals;
  std::string signals_to_handle;
  /// Every failure gives exit status 1.
  bool torchrun_exit_codes = false;
  /// What ranks put into a session of its own outlives them.
  bool keep_daemons = false;
  /// Each rank finds LOCAL_RANK=0 and one GPU.
  bool virtual_local_rank = false;
  /// Events go to standard error, as lines of JSON.
  bool events = false;
  /// The name of the backend as the user knows it, for events.
  std::string backend_name = "static";
  LogLevel log_level = LogLevel::warning;
  /// What the user should know before the ranks start, a line each.
  std::vector<std::string> notices;
};

/// Throws UsageError when the options contradict each other or ask for what is not there.
LaunchConfig make_config(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment);

/// Fills in what a Slurm step knows, for `--rdzv-backend slurm`: the nodes, the number of this one, and where
/// they meet (the first node of the step, at a port worked out from the job's number). A step of several
/// nodes is taken for that also where nothing is said of nodes and addresses; `--standalone` keeps each node
/// to itself.
///
/// Throws UsageError where the step contradicts the command line, or there is no step. Does nothing
/// elsewhere.
void complete_from_slurm(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment,
                         LaunchConfig& config);

/// The numbers of --signals-to-handle ("SIGTERM,SIGUSR1"). A name that no signal has is told in `notices` and
/// passed over, as torchrun does. Throws UsageError for a signal that nobody can catch.
std::vector<int> parse_signals(const std::string& text, std::vector<std::string>& notices);

}  // namespace lockstep::launch
