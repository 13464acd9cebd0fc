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

namespace lockstep::launch {

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
  Time heartbeat_timeout{5'000};
  Time keep_alive_interval{5'000};
  /// A node that misses as many beats is lost.
  int keep_alive_max_attempt = 3;
  /// For one answer.
  Time read_timeout{60'000};
  /// For all nodes of a static job.
  Time timeout{900'000};
};

/// Where and how the nodes meet, worked out from the command line.
struct RendezvousConfig {
  Backend backend = Backend::alone;
  int min_nodes = 1;
  int max_nodes = 1;
  /// Whether --nnodes (or PET_NNODES) was given; under Slurm the step knows it otherwise.
  bool nodes_given = false;
  /// The number of this node. c10d: the number that it asks for, nothing: any.
  std::optional<int> node_rank;
  /// Where the nodes meet; alone: what the ranks get for the job's store. No host: the Slurm step is to say
  /// it. Port 0: a free one, where that is possible.
  net::HostPort endpoint;
  /// The address of this node for the others, when the user has chosen one.
  std::optional<std::string> local_addr;
  RendezvousTimes times;
  /// Launchers and ranks prove nothing to each other.
  bool no_job_secret = false;
  /// c10d: whether this node opens the endpoint; nothing: it finds out.
  std::optional<bool> is_host;
};

/// Throws UsageError when the options contradict each other. What is accepted and means nothing is told in
/// `notices`, a line each.
RendezvousConfig rendezvous_config(const OptionTable<RunOptions>::Parsed& parsed,
                                   std::vector<std::string>& notices);

/// Splits "host", "host:port", "[IPv6]" or "[IPv6]:port"; `default_port` when none was written. Throws
/// UsageError.
net::HostPort parse_endpoint(const std::string& text, std::uint16_t default_port);

/// The text without the blanks around it.
std::string_view stripped(std::string_view text);

/// "N" or "MIN:MAX". Throws UsageError.
std::pair<int, int> parse_nodes(const std::string& text);

/// Reads `--rdzv-conf` ("join_timeout=60,is_host=1") into the plan, in torchrun's grammar: items between
/// commas, blanks around names and values dropped, and also one pair of quotes around the whole. A key that
/// means nothing here is told in `notices`. Throws UsageError that names the item.
void read_rendezvous_conf(const std::string& text, RendezvousConfig& config,
                          std::vector<std::string>& notices);

}  // namespace lockstep::launch
