#include "agent/open_coordinator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/host_name.hpp"
#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/socket.hpp"
#include "net/store/server.hpp"
#include "process/open_files.hpp"
#include "rendezvous/local_coordinator_client.hpp"
#include "rendezvous/remote_coordinator_client.hpp"
#include "torchrun_interop/torchrun_client.hpp"
#include "torchrun_interop/torchrun_server.hpp"

namespace lockstep::launch {
namespace {

using net::Clock;

/// Time for the endpoint's name to resolve before the agent runs, which then waits for it: nothing else, not
/// even a signal, is answered meanwhile.
constexpr std::chrono::milliseconds kResolveTime{500};

std::vector<net::Address> addresses_of(const LaunchConfig& config) {
  return net::resolve(config.endpoint, Clock::now() + kResolveTime);
}

bool is_loopback_name(const std::string& host) {
  const auto numeric = net::Address::numeric(host, 0);
  return host == "localhost" || (numeric && numeric->is_loopback());
}

/// Listens for an endpoint on this host: on its own address, if it is one of this host's. A name that means
/// loopback on this host only (as in Debian's /etc/hosts) means another address to the other nodes; one of
/// several addresses (two families, two networks) may mean any of them.
net::FileDescriptor listen_for(const LaunchConfig& config) {
  const std::string& host = config.endpoint.host;
  const std::uint16_t port = config.endpoint.port;
  // The other nodes connect to the endpoint, this node's ranks to another address of this host.
  if (config.backend == Backend::c10d && config.options.local_addr && *config.options.local_addr != host)
    return net::listen_everywhere(port);
  const auto addresses = addresses_of(config);
  if (is_loopback_name(host)) return net::listen_at(addresses.front());
  const auto is_own = [](const net::Address& address) {
    return !address.is_loopback() && net::is_local(address);
  };
  const auto own = std::ranges::find_if(addresses, is_own);
  const bool is_only_one = std::ranges::count_if(addresses, is_own) == 1;
  return is_only_one ? net::listen_at(*own) : net::listen_everywhere(port);
}

bool is_this_host(const std::vector<net::Address>& addresses) {
  return std::ranges::any_of(addresses, net::is_local);
}

/// Whether the endpoint is this host; nothing if its name does not resolve yet.
std::optional<bool> is_own_endpoint(const LaunchConfig& config) {
  if (is_loopback_name(config.endpoint.host) || config.endpoint.host == host_name()) return true;
  try {
    return is_this_host(addresses_of(config));
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
}

bool hosts_coordinator(const LaunchConfig& config) {
  if (config.backend == Backend::alone) return true;
  // The client that joins keeps resolving the name, and becomes the host if it is this host's.
  if (config.backend == Backend::c10d)
    return config.is_host ? *config.is_host : is_own_endpoint(config).value_or(false);
  return config.node_rank.value_or(0) == 0;
}

std::chrono::milliseconds join_timeout_of(const LaunchConfig& config) {
  return config.backend == Backend::static_ ? config.times.timeout : config.times.join_timeout;
}

/// How long a launcher may be silent: at least two keep-alives.
std::chrono::milliseconds keep_alive_timeout_of(const LaunchConfig& config) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
  const auto attempts = std::max<std::int64_t>(2, config.times.keep_alive_max_attempt);
  const auto interval = std::min(config.times.keep_alive_interval, kLongest);
  return std::clamp<std::chrono::milliseconds>(interval * std::min<std::int64_t>(attempts, 1000),
                                               std::chrono::seconds(1), kLongest);
}

/// Where the other nodes find this one.
std::string location_of_host(const LaunchConfig& config, const net::HostPort& endpoint) {
  // Another host may be the master, or one that forwards the port to this one.
  if (config.backend == Backend::static_ && hosts_coordinator(config) &&
      !is_own_endpoint(config).value_or(true)) {
    return fmt::format(
        "This node ({}) has --node-rank {} and so hosts the job, on port {}, "
        "but --master-addr {} is not an address of this host. "
        "If another host is node 0, give this one its own --node-rank",
        host_name(), config.node_rank.value_or(0), endpoint.port, endpoint.host);
  }
  return "This node waits at " + endpoint.text();
}

/// What to run on the missing nodes.
std::string how_to_join(const LaunchConfig& config, const net::HostPort& endpoint) {
  const std::string where = location_of_host(config, endpoint);
  if (config.backend == Backend::alone) return "";
  if (config.backend == Backend::slurm)
    return where + " for the other tasks of the Slurm step: start one launcher on each node with srun";
  const std::string options =
      config.backend == Backend::c10d
          ? fmt::format("--rdzv-backend c10d --rdzv-endpoint {}", endpoint.text())
          : fmt::format("--node-rank N --master-addr {} --master-port {}", endpoint.host, endpoint.port);
  const RunOptions& given = config.options;
  if (is_loopback_name(endpoint.host)) {
    return fmt::format(
        "{}, which is this host's loopback address: launchers on other hosts cannot reach it. Give "
        "all of them {} with this host's name or address",
        where, config.backend == Backend::c10d ? "--rdzv-endpoint" : "--master-addr");
  }
  return fmt::format("{}; run on the others: lockstep run --nnodes {} {}{}{}{} ... {}{}", where,
                     range_text(config.min_nodes, config.max_nodes), options,
                     config.run_id == "none" ? "" : " --rdzv-id " + config.run_id,
                     given.no_job_secret ? " --no-job-secret" : "",
                     given.role == "default" ? "" : " --role " + given.role, given.module ? "-m " : "",
                     config.program);
}

CoordinatorOptions coordinator_options(const LaunchConfig& config, const net::HostPort& endpoint) {
  return {.run_id = config.run_id,
          .min_nodes = config.min_nodes,
          .max_nodes = config.max_nodes,
          .max_restarts = config.options.max_restarts,
          .restart_backoff = config.restart_backoff,
          .join_timeout = join_timeout_of(config),
          .join_timeout_option =
              config.backend == Backend::static_ ? "--rdzv-conf timeout" : "--rdzv-conf join_timeout",
          .last_call_timeout = config.times.last_call_timeout,
          .keep_alive_timeout = keep_alive_timeout_of(config),
          .close_timeout = config.times.close_timeout,
          .heartbeat_timeout = config.heartbeat_timeout,
          .how_to_join = how_to_join(config, endpoint),
          .recovery = {
              .max_recoveries = config.options.max_recoveries,
              .park_timeout = std::chrono::milliseconds(std::llround(config.options.recovery_timeout * 1000)),
              .spares = config.options.spares}};
}

std::unique_ptr<CoordinatorClient> host_coordinator(const LaunchConfig& config, net::FileDescriptor listener,
                                                    const JobSecret& secret) {
  if (config.max_nodes > 1) raise_open_files_limit();
  net::ServerOptions options;
  options.secret = secret.value;
  // torchrun's agents may connect from hosts where nobody can verify their user.
  options.every_host = config.backend == Backend::static_ || secret.is_none;
  options.verify_peer_uid = !secret.is_none;
  auto server = std::make_unique<net::Server>(std::move(listener), options);
  const std::uint16_t port = server->address().port();
  // A static job's ranks get the address as typed, on all nodes.
  const bool typed = config.backend == Backend::static_ || config.backend == Backend::alone;
  const std::string& host = config.endpoint.host;
  auto client = std::make_unique<LocalCoordinatorClient>(
      coordinator_options(config, {host, port}), std::move(server),
      net::HostPort{typed ? host : config.options.local_addr.value_or(host), port}, secret.name);
  client->allow([&](net::Server& store, Coordinator& coordinator) -> std::unique_ptr<StoreNodes> {
    if (config.backend == Backend::static_)
      return std::make_unique<TorchrunServer>(config.run_id, config.max_nodes, store, coordinator);
    if (config.backend == Backend::c10d) return std::make_unique<TorchrunRejecter>(store, coordinator);
    return nullptr;
  });
  return client;
}

std::unique_ptr<CoordinatorClient> host_coordinator(const LaunchConfig& config, const JobSecret& secret) {
  try {
    return host_coordinator(config, listen_for(config), secret);
  } catch (const net::AddressInUse& error) {
    // Several launchers of one job may share a host: the port may be in use by their coordinator.
    if (config.backend == Backend::c10d && !config.is_host) throw;
    const bool may_be_node_0 = config.backend == Backend::static_;
    throw CommunicationError(fmt::format(
        "{}{}", error.what(),
        may_be_node_0 ? " If it is node 0 of this job, give this launcher its own --node-rank." : ""));
  }
}

/// A host that waits for its endpoint's name begins as one that joins.
enum class Role { joins, hosts };

/// `port_in_use`: the system's message about the endpoint's port, if this node tried to listen on it.
std::unique_ptr<CoordinatorClient> join_coordinator(const LaunchConfig& config, const JobSecret& secret,
                                                    Role role, const std::string& port_in_use = "") {
  RemoteCoordinatorClient::Options options;
  if (role == Role::hosts) {
    options.is_host = [](const std::vector<net::Address>&) { return true; };
  } else if (config.backend == Backend::c10d && !config.is_host && port_in_use.empty()) {
    options.is_host = is_this_host;
  }
  options.host = [&config, secret] { return host_coordinator(config, secret); };
  options.endpoint = config.endpoint;
  options.secret = secret.value;
  options.secret_name = secret.name;
  options.port_in_use = port_in_use;
  options.join_timeout = join_timeout_of(config);
  options.keep_alive_timeout = keep_alive_timeout_of(config);
  options.keep_alive_interval = std::min(config.times.keep_alive_interval, options.keep_alive_timeout / 3);
  if (config.backend == Backend::static_) {
    options.master_host = config.endpoint.host;
    const TorchrunClient::Options torchrun{coordinator_options(config, options.endpoint),
                                           config.node_rank.value_or(0), options.endpoint};
    options.torchrun = [torchrun](const std::vector<net::Address>& store) {
      return std::make_unique<TorchrunClient>(torchrun, store);
    };
  }
  return std::make_unique<RemoteCoordinatorClient>(options, Clock::now());
}

}  // namespace

JobSecret secret_for(const LaunchConfig& config, const Environment& environment) {
  if (config.backend == Backend::alone) return JobSecret::generate();
  if (config.options.no_job_secret) return JobSecret::none(config.run_id);
  return JobSecret::from_env(config.run_id, environment);
}

std::unique_ptr<CoordinatorClient> open_coordinator(const LaunchConfig& config, const JobSecret& secret) {
  if (!hosts_coordinator(config)) return join_coordinator(config, secret, Role::joins);
  try {
    return host_coordinator(config, secret);
  } catch (const net::AddressInUse& error) {
    return join_coordinator(config, secret, Role::joins, error.what());
  } catch (const TimeoutError&) {
    // The endpoint's name does not resolve yet.
    return join_coordinator(config, secret, Role::hosts);
  }
}

}  // namespace lockstep::launch
