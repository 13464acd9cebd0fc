#include "config/rendezvous_config.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "config/rendezvous_conf.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr std::uint16_t kStaticPort = 29500;
constexpr std::uint16_t kC10dPort = 29400;

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::optional<std::uint16_t> chosen_port(int port) {
  if (port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(port);
}

Backend named_backend(const std::string& name) {
  if (name == "static") return Backend::static_;
  if (name == "c10d") return Backend::c10d;
  if (name == "slurm") return Backend::slurm;
  const std::string head = "--rdzv-backend '" + name + "': expected static, c10d or slurm";
  if (name == "etcd" || name == "etcd-v2") {
    throw UsageError(head + ". No etcd server is needed: use c10d, where one of the nodes is the meeting " +
                     "point, with --rdzv-endpoint HOST:PORT of that node.");
  }
  throw UsageError(head + ".");
}

Backend backend_of(const RunOptions& options, int max_nodes) {
  if (options.standalone) return Backend::alone;
  const Backend backend = named_backend(options.rdzv_backend);
  return backend != Backend::slurm && max_nodes == 1 ? Backend::alone : backend;
}

/// c10d meets on this host when nothing is said.
Endpoint c10d_endpoint(const RunOptions& options) {
  if (options.rdzv_endpoint.empty()) return {"localhost", kC10dPort};
  const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint);
  return {endpoint.host, chosen_port(endpoint.port.value_or(kC10dPort))};
}

/// Nothing that was not given: the step knows a host, and a port that no other job takes.
Endpoint slurm_endpoint(const RunOptions& options) {
  return options.rdzv_endpoint.empty() ? Endpoint{} : parse_endpoint(options.rdzv_endpoint);
}

Endpoint endpoint_of(Backend backend, const RunOptions& options) {
  if (backend == Backend::alone) return {};
  if (backend == Backend::c10d) return c10d_endpoint(options);
  if (backend == Backend::slurm) return slurm_endpoint(options);
  const Endpoint endpoint = static_endpoint(options);
  if (endpoint.port) return endpoint;
  throw UsageError(
      "port 0 (--master-port, --rdzv-endpoint): expected one that all nodes know, as there are several.");
}

void plan_node_rank(const OptionTable<RunOptions>::Parsed& parsed, RendezvousConfig& config) {
  const int rank = parsed.options.node_rank;
  if (parsed.was_given("node-rank") || config.backend == Backend::static_) config.node_rank = rank;
  if (config.backend != Backend::slurm && rank >= config.max_nodes) {
    throw UsageError("--node-rank '" + std::to_string(rank) + "': expected a number below " +
                     std::to_string(config.max_nodes) + ", the number of nodes (--nnodes).");
  }
}

}  // namespace

std::pair<int, int> parse_nodes(const std::string& text) {
  const auto refuse = [&] {
    return UsageError("--nnodes '" + text +
                      "': expected a number of nodes from 1, or MIN:MAX with 1 <= MIN <= MAX.");
  };
  const auto number = [&](std::string_view part) {
    int value = 0;
    const char* end = part.data() + part.size();
    const auto [stop, failure] = std::from_chars(part.data(), end, value);
    if (failure != std::errc() || stop != end || value < 1) throw refuse();
    return value;
  };
  const auto colon = text.find(':');
  if (colon == std::string::npos) return {number(text), number(text)};
  const std::pair<int, int> nodes{number(std::string_view(text).substr(0, colon)),
                                  number(std::string_view(text).substr(colon + 1))};
  if (nodes.first > nodes.second) throw refuse();
  return nodes;
}

Endpoint parse_endpoint(const std::string& text) {
  const auto refuse = [&] {
    return UsageError("--rdzv-endpoint '" + text +
                      "': expected HOST, HOST:PORT or [IPv6]:PORT, with a port up to 65535.");
  };
  const auto bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  const auto colon = bracket == std::string::npos ? text.find(':') : text.find(':', bracket);
  const auto host_end = bracket == std::string::npos ? std::min(colon, text.size()) : bracket + 1;
  const std::string host = without_brackets(text.substr(0, host_end));
  if (host.empty() || host.find_first_of("[] ") != std::string::npos) throw refuse();
  if (host_end == text.size()) return {host, std::nullopt};
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data() + host_end + 1, end, port);
  if (text[host_end] != ':' || failure != std::errc() || stop != end) throw refuse();
  return {host, port};
}

Endpoint static_endpoint(const RunOptions& options) {
  if (options.rdzv_endpoint.empty()) {
    return {without_brackets(options.master_addr), chosen_port(options.master_port)};
  }
  const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint);
  return {endpoint.host, chosen_port(endpoint.port.value_or(kStaticPort))};
}

RendezvousConfig plan_rendezvous(const OptionTable<RunOptions>::Parsed& parsed,
                                 std::vector<std::string>& notices) {
  const RunOptions& options = parsed.options;
  RendezvousConfig config;
  std::tie(config.min_nodes, config.max_nodes) = parse_nodes(options.nnodes);
  config.nodes_given = parsed.was_given("nnodes");
  if (options.standalone && config.max_nodes > 1) {
    throw UsageError("--standalone and --nnodes '" + options.nnodes +
                     "' contradict each other: a standalone job has one node. Drop one.");
  }
  config.backend = backend_of(options, config.max_nodes);
  config.local_addr = options.local_addr;
  read_rendezvous_conf(options.rdzv_conf, config, notices);
  plan_node_rank(parsed, config);
  const Endpoint endpoint = endpoint_of(config.backend, options);
  config.endpoint_host = endpoint.host;
  config.endpoint_port = endpoint.port;
  return config;
}

}  // namespace lockstep::launch
