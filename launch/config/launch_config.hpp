#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "net/address.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

using Parsed = OptionTable<RunOptions>::Parsed;

/// How the nodes of a job find each other.
enum class Backend {
  /// One node, which needs no other.
  alone,
  /// The address of node 0 and the number of each node are given.
  static_,
  /// The nodes meet at an endpoint that one of them opens, and get their numbers there.
  c10d,
  /// Number and address come from the variables of the Slurm step.
  slurm,
};

/// How long the nodes wait for each other: `--rdzv-conf`, in seconds there.
struct RendezvousTimes {
  using Time = std::chrono::milliseconds;

  /// For the smallest number of nodes.
  Time join_timeout{600'000};
  /// For more nodes, once the smallest number is there.
  Time last_call_timeout{30'000};
  /// For the nodes to end together.
  Time close_timeout{30'000};
  Time keep_alive_interval{5'000};
  /// A node that misses as many beats is lost.
  int keep_alive_max_attempt = 3;
  /// For all nodes of a static job.
  Time timeout{900'000};
};

/// Where and how the nodes meet.
struct RendezvousConfig {
  Backend backend = Backend::alone;
  int min_nodes = 1;
  int max_nodes = 1;
  /// The number of this node. c10d: the number that it asks for, nothing: any.
  std::optional<int> node_rank;
  /// Where the nodes meet; alone: what the ranks get for the job's store. No host: the Slurm step is to say
  /// it. Port 0: a free one, where that is possible.
  net::HostPort endpoint;
  RendezvousTimes times;
  /// c10d: whether this node opens the endpoint; nothing: it finds out.
  std::optional<bool> is_host;
};

/// Where one stream of a rank goes.
enum class Sink {
  /// The launcher's own stream, untouched.
  console,
  /// A file in the log folder.
  file,
  nothing,
  /// The console, line by line with the rank in front, and a file where there is a log folder.
  forward,
};

/// Standard output and standard error of one rank.
struct RankOutput {
  Sink out = Sink::console;
  Sink err = Sink::console;
};

/// What is to be started, worked out from the command line: every default is filled in.
struct LaunchConfig : RendezvousConfig {
  /// As given; what has to be worked out of them is below.
  RunOptions options;
  /// The words to execute, the interpreter included.
  std::vector<std::string> command;
  /// Where the program's own arguments begin in `command`: `${local_rank}` is replaced from here on.
  std::size_t first_argument = 1;
  /// How the program is called in messages.
  std::string program;
  /// The Python script that the ranks run; empty: none. Looked for once, before they start.
  std::string script;
  int local_world_size = 1;
  std::string run_id = "none";
  /// The folder of this run's log files; empty: none are kept.
  std::string log_dir;
  /// One for each rank of this node.
  std::vector<RankOutput> outputs;
  /// What stands in front of teed lines, with ${role_name}, ${rank} and ${local_rank}; empty: "[role0]:".
  std::string line_prefix;
  /// At this size a log file is set aside; 0: never.
  std::int64_t log_max_bytes = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// One for each rank of this node, or none: they are not bound.
  std::vector<CpuBinding> bindings;
  /// 0: ranks that make no progress are only named.
  std::chrono::milliseconds heartbeat_timeout{0};
  std::chrono::milliseconds restart_backoff{1'000};
  /// The signals that end the job.
  std::vector<int> end_signals;
  /// The name of the backend as the user knows it, for events.
  std::string backend_name = "static";
  /// No notices; failures are always reported.
  bool quiet = false;
  /// What the user should know before the ranks start, a line each.
  std::vector<std::string> notices;
};

/// Throws UsageError when the options contradict each other or ask for what is not there.
LaunchConfig make_config(const Parsed& parsed, const Environment& environment);

/// Fills in what a Slurm step knows, for `--rdzv-backend slurm`: the nodes, the number of this one, and where
/// they meet (the first node of the step, at a port worked out from the job's number). A step of several
/// nodes is taken for that also where nothing is said of nodes and addresses; `--standalone` keeps each node
/// to itself.
///
/// Throws UsageError where the step contradicts the command line, or there is no step. Does nothing
/// elsewhere.
void complete_from_slurm(const Parsed& parsed, const Environment& environment, LaunchConfig& config);

// The parts of make_config. All throw UsageError.

/// What is accepted and means nothing is told in `notices`.
RendezvousConfig rendezvous_config(const Parsed& parsed, std::vector<std::string>& notices);

/// Splits "host", "host:port", "[IPv6]" or "[IPv6]:port"; `default_port` when none was written.
net::HostPort parse_endpoint(const std::string& text, std::uint16_t default_port);

/// "N" or "MIN:MAX".
std::pair<int, int> parse_nodes(const std::string& text);

/// The path of a program that belongs to Lockstep, "lockstep-test", beside this launcher. Throws UsageError
/// that says how to get it where it is not there.
std::string program_of_lockstep(const std::string& name);

}  // namespace lockstep::launch
