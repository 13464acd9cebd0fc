#include "rendezvous/open_coordinator.hpp"

#include <algorithm>

#include "core/host_name.hpp"
#include "failure/failure_analysis.hpp"
#include "lockstep/core/error.hpp"
#include "net/resolve.hpp"
#include "net/server.hpp"
#include "net/socket.hpp"
#include "rendezvous/local_coordinator_client.hpp"
#include "rendezvous/remote_coordinator_client.hpp"
#include "torchrun_interop/torchrun_client.hpp"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kResolveTime{20};

/// Where the ranks of the node that hosts the coordinator find the store. Port 0: a free one.
net::HostPort own_address(const LaunchConfig& plan) {
  if (plan.backend == Backend::alone) return {plan.master_addr, plan.master_port.value_or(0)};
  // A static job's ranks get what was typed, on all nodes alike.
  const bool typed = plan.backend == Backend::static_;
  return {typed ? plan.endpoint_host : plan.local_addr.value_or(plan.endpoint_host),
          plan.endpoint_port.value_or(0)};
}

std::vector<net::Address> addresses_of(const std::string& host, std::uint16_t port) {
  return net::resolve(host, port, Clock::now() + kResolveTime);
}

bool is_loopback_name(const std::string& host) {
  const auto numeric = net::Address::numeric(host, 0);
  return host == "localhost" || (numeric && numeric->is_loopback());
}

/// Where to listen for an endpoint that is this host: at its own address, if that is one of this host's. A
/// name that means loopback on this host alone (as Debian's /etc/hosts has it) means something else to the
/// others.
net::FileDescriptor listen_for(const LaunchConfig& plan) {
  const std::string& host = plan.backend == Backend::alone ? plan.master_addr : plan.endpoint_host;
  const std::uint16_t port = own_address(plan).port;
  // The others come to the endpoint, this node's ranks to another address of this host.
  if (plan.backend == Backend::c10d && plan.local_addr && *plan.local_addr != host)
    return net::listen_everywhere(port);
  const auto addresses = addresses_of(host, port);
  if (is_loopback_name(host)) return net::listen_at(addresses.front());
  const auto own = std::find_if(addresses.begin(), addresses.end(), [](const net::Address& address) {
    return !address.is_loopback() && net::is_local(address);
  });
  return own == addresses.end() ? net::listen_everywhere(port) : net::listen_at(*own);
}

/// A name that nobody knows yet is not this host's: whoever joins goes on asking for it.
std::vector<net::Address> addresses_or_none(const std::string& host) {
  try {
    return addresses_of(host, 0);
  } catch (const CommunicationError&) {
    return {};
  }
}

bool is_this_host(const std::string& host) {
  if (is_loopback_name(host) || host == host_name()) return true;
  const auto addresses = addresses_or_none(host);
  return std::any_of(addresses.begin(), addresses.end(),
                     [](const net::Address& a) { return net::is_local(a); });
}

bool hosts_coordinator(const LaunchConfig& plan) {
  switch (plan.backend) {
    case Backend::alone:
      return true;
    case Backend::c10d:
      return plan.is_host ? *plan.is_host : is_this_host(plan.endpoint_host);
    case Backend::static_:
    case Backend::slurm:
      break;
  }
  return plan.node_rank.value_or(0) == 0;
}

/// How long a silent launcher is waited for: two signs of life at least.
std::chrono::milliseconds keep_alive_timeout_of(const LaunchConfig& plan) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
  const auto attempts = std::max<std::int64_t>(2, plan.times.keep_alive_max_attempt);
  const auto interval = std::min(plan.times.keep_alive_interval, kLongest);
  return std::clamp<std::chrono::milliseconds>(interval * std::min<std::int64_t>(attempts, 1000),
                                               std::chrono::seconds(1), kLongest);
}

CoordinatorOptions coordinator_options(const LaunchConfig& plan) {
  CoordinatorOptions options;
  options.run_id = plan.run_id;
  options.min_nodes = plan.min_nodes;
  options.max_nodes = plan.max_nodes;
  options.max_restarts = plan.max_restarts;
  options.restart_backoff = plan.restart_backoff;
  options.join_timeout = plan.backend == Backend::static_ ? plan.times.timeout : plan.times.join_timeout;
  options.last_call_timeout = plan.times.last_call_timeout;
  options.keep_alive_timeout = keep_alive_timeout_of(plan);
  options.close_timeout = plan.times.close_timeout;
  options.heartbeat_timeout = plan.heartbeat_timeout;
  options.judge = analyze_failures;
  return options;
}

std::unique_ptr<CoordinatorClient> host_coordinator(const LaunchConfig& plan, net::FileDescriptor listener,
                                                    const JobSecret& secret) {
  net::ServerOptions options;
  options.secret = secret.value();
  // torchrun's agents may come from hosts where nobody can vouch for them.
  options.every_host = plan.backend == Backend::static_;
  auto server = std::make_unique<net::Server>(std::move(listener), options);
  const net::HostPort master{own_address(plan).host, server->address().port()};
  auto coordinator =
      std::make_unique<LocalCoordinatorClient>(coordinator_options(plan), std::move(server), master);
  if (plan.backend == Backend::static_) coordinator->allow_torchrun(plan.run_id, plan.max_nodes);
  return coordinator;
}

TorchrunClient::Options python_options(const LaunchConfig& plan) {
  TorchrunClient::Options options;
  options.run_id = plan.run_id;
  options.node_rank = plan.node_rank.value_or(0);
  options.max_nodes = plan.max_nodes;
  options.max_restarts = plan.max_restarts;
  options.restart_backoff = plan.restart_backoff;
  options.timeout = plan.times.timeout;
  options.master = {plan.endpoint_host, plan.endpoint_port.value_or(0)};
  return options;
}

std::unique_ptr<CoordinatorClient> join_coordinator(const LaunchConfig& plan, const JobSecret& secret) {
  RemoteCoordinatorClient::Options options;
  options.endpoint = {plan.endpoint_host, plan.endpoint_port.value_or(0)};
  options.secret = secret.value();
  options.join_timeout = plan.backend == Backend::static_ ? plan.times.timeout : plan.times.join_timeout;
  options.times.keep_alive_timeout = keep_alive_timeout_of(plan);
  options.times.keep_alive_interval =
      std::min(plan.times.keep_alive_interval, options.times.keep_alive_timeout / 3);
  if (plan.backend == Backend::static_) {
    options.times.master_host = plan.endpoint_host;
    options.python = [plan](const std::vector<net::Address>& store) {
      return std::make_unique<TorchrunClient>(python_options(plan), store);
    };
  }
  return std::make_unique<RemoteCoordinatorClient>(options, Clock::now());
}

}  // namespace

JobSecret secret_for(const LaunchConfig& plan, const Environment& environment) {
  return plan.backend == Backend::alone ? JobSecret::generate() : JobSecret::shared(plan.run_id, environment);
}

std::unique_ptr<CoordinatorClient> open_coordinator(const LaunchConfig& plan, const JobSecret& secret) {
  if (!hosts_coordinator(plan)) return join_coordinator(plan, secret);
  net::FileDescriptor listener;
  try {
    listener = listen_for(plan);
  } catch (const CommunicationError& error) {
    // Several launchers of one job may share a host; that it is one job, and not two, only a token can tell.
    if (plan.backend == Backend::c10d && !plan.is_host && secret.given())
      return join_coordinator(plan, secret);
    throw CommunicationError(
        std::string(error.what()) +
        (plan.backend == Backend::c10d
             ? " If the coordinator of this job runs there already, give --rdzv-conf is_host=false here, "
               "or the same LOCKSTEP_JOB_TOKEN to both."
             : ""));
  }
  return host_coordinator(plan, std::move(listener), secret);
}

}  // namespace lockstep::launch
