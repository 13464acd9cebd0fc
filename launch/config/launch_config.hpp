#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "net/address.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

using Parsed = OptionTable<RunOptions>::Parsed;

/// How the nodes of a job find each other.
enum class Backend {
  /// One node only.
  alone,
  /// By the given address of node 0 and the given rank of each node.
  static_,
  /// At an endpoint that one of them hosts; they get their ranks there.
  c10d,
  /// Ranks and address are derived from the variables of the Slurm step.
  slurm,
};

/// How long nodes wait for each other: `--rdzv-conf` (in seconds there).
struct RendezvousTimes {
  using Time = std::chrono::milliseconds;

  /// For the minimum number of nodes.
  Time join_timeout{600'000};
  /// For more nodes, once there are enough.
  Time last_call_timeout{30'000};
  /// For the nodes to leave at the end.
  Time close_timeout{30'000};
  Time keep_alive_interval{5'000};
  /// A node that misses this many keep-alives is lost.
  int keep_alive_max_attempt = 3;
  /// For all nodes of a static job.
  Time timeout{900'000};
};

/// The destination of one stream of a rank.
enum class Sink {
  /// The launcher's own stream, directly.
  console,
  /// A file in the log folder.
  file,
  nothing,
  /// The console, in lines with the rank in front, and a file if there is a log folder.
  forward,
};

/// Standard output and standard error of one rank.
struct RankOutput {
  Sink out = Sink::console;
  Sink err = Sink::console;
};

/// What to start, according to the command line, with all defaults filled in.
struct LaunchConfig {
  /// The options as given; derived values are below.
  RunOptions options;
  Backend backend = Backend::alone;
  int min_nodes = 1;
  int max_nodes = 1;
  /// The rank of this node. c10d: the rank that it requests; nullopt: any.
  std::optional<int> node_rank;
  /// Where the nodes meet; alone: the address of the store for the ranks. Empty host: taken from the Slurm
  /// step. Port 0: a free one, if possible.
  net::HostPort endpoint;
  RendezvousTimes times;
  /// c10d: whether this node hosts the endpoint; nullopt: to be determined.
  std::optional<bool> is_host;
  /// The command to execute, including the interpreter. `${local_rank}` is replaced in all words but the
  /// first.
  std::vector<std::string> command;
  /// The program's name in messages.
  std::string program;
  /// The Python script of the ranks; empty: none. Checked once, before they start.
  std::string script;
  int local_world_size = 1;
  std::string run_id = "none";
  /// Where temporary files go.
  std::filesystem::path temporary_parent;
  /// Folder of this run's log files; empty: none are kept.
  std::string log_dir;
  /// One per rank of this node.
  std::vector<RankOutput> outputs;
  /// Prefix of teed lines, with ${role_name}, ${rank} and ${local_rank}; empty: "[role0]:".
  std::string line_prefix;
  /// The size at which a log file is rotated; 0: never.
  std::int64_t log_max_bytes = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// One per rank of this node; empty: ranks are not bound.
  std::vector<CpuBinding> bindings;
  /// 0: hangs are only reported.
  std::chrono::milliseconds heartbeat_timeout{0};
  std::chrono::milliseconds restart_backoff{1'000};
  /// Where metrics are served; nullopt: they are not.
  std::optional<net::Address> metrics;
  /// The signals that end the job.
  std::vector<int> end_signals;
  /// The backend as the user named it, for events.
  std::string backend_name = "static";
  /// Print no notices; failures are always reported.
  bool quiet = false;
  /// Notices to print before the ranks start, one line each.
  std::vector<std::string> notices;
};

/// Throws UsageError if options contradict each other or cannot be satisfied.
LaunchConfig make_config(const Parsed& parsed, const Environment& environment);

/// Fills in what the Slurm step provides: the nodes, this node's rank, and the address (the first node of the
/// step, at a port derived from the job id). Applies to `--rdzv-backend slurm`, and to a step of several
/// nodes if no option for nodes or addresses is given. `--standalone` keeps each node separate.
///
/// Throws UsageError if the step contradicts the command line, or if there is none for `--rdzv-backend
/// slurm`.
void complete_from_slurm(const Parsed& parsed, const Environment& environment, LaunchConfig& config);

/// The path of a program of Lockstep, such as "lockstep-test", beside this launcher. Throws UsageError that
/// says how to get it if it is missing.
std::string program_of_lockstep(const std::string& name);

}  // namespace lockstep::launch
