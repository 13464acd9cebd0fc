#include "config/rendezvous_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

constexpr std::uint16_t kStaticPort = 29500;
constexpr std::uint16_t kC10dPort = 29400;

Backend named_backend(const std::string& name) {
  if (name == "static") return Backend::static_;
  if (name == "c10d") return Backend::c10d;
  if (name == "slurm") return Backend::slurm;
  const bool is_etcd = name == "etcd" || name == "etcd-v2";
  throw formatted<UsageError>("--rdzv-backend '{}': expected static, c10d or slurm.{}", name,
                              is_etcd ? " No etcd server is needed: use c10d, where the nodes meet at one of "
                                        "them, with --rdzv-endpoint HOST:PORT of that node."
                                      : "");
}

Backend backend_of(const RunOptions& options, int max_nodes) {
  if (options.standalone) return Backend::alone;
  const Backend backend = named_backend(options.rdzv_backend);
  return backend != Backend::slurm && max_nodes == 1 ? Backend::alone : backend;
}

net::HostPort static_endpoint(const RunOptions& options) {
  if (!options.rdzv_endpoint.empty()) return parse_endpoint(options.rdzv_endpoint, kStaticPort);
  return {net::without_brackets(options.master_addr), static_cast<std::uint16_t>(options.master_port)};
}

/// A single node meets no other: only the ranks use the address.
net::HostPort own_endpoint(const Parsed& parsed) {
  const RunOptions& options = parsed.options;
  const bool given =
      parsed.was_given("master-addr") || parsed.was_given("master-port") || !options.rdzv_endpoint.empty();
  const bool meets = options.standalone || options.rdzv_backend == "c10d";
  if (given && !meets) return static_endpoint(options);
  return {options.local_addr.value_or("127.0.0.1"), 0};
}

net::HostPort endpoint_of(Backend backend, const Parsed& parsed) {
  const std::string& given = parsed.options.rdzv_endpoint;
  switch (backend) {
    case Backend::alone:
      return own_endpoint(parsed);
    case Backend::c10d:
      return given.empty() ? net::HostPort{"localhost", kC10dPort} : parse_endpoint(given, kC10dPort);
    case Backend::slurm:
      // The Slurm step provides a host, and a port that no other job uses.
      return given.empty() ? net::HostPort{} : parse_endpoint(given, 0);
    case Backend::static_:
      break;
  }
  const net::HostPort endpoint = static_endpoint(parsed.options);
  if (endpoint.port != 0) return endpoint;
  throw UsageError(
      "port 0 (--master-port, --rdzv-endpoint) works on one node only: give a port that all nodes know.");
}

void plan_node_rank(const Parsed& parsed, LaunchConfig& config) {
  const int rank = parsed.options.node_rank;
  if (parsed.was_given("node-rank") || config.backend == Backend::static_) config.node_rank = rank;
  if (config.backend != Backend::slurm && rank >= config.max_nodes) {
    throw formatted<UsageError>(
        "--node-rank '{}': expected a number below {}, the number of nodes (--nnodes).", rank,
        config.max_nodes);
  }
}

/// Longer than any job; prevents overflow of sums.
constexpr double kLongestTime = 1e9;

/// Removes the quotes that a shell leaves in `--rdzv-conf="'a=1'"`.
std::string_view remove_quotes(std::string_view text) {
  text = trim_blanks(text);
  const bool quoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"');
  return quoted && text.back() == text.front() ? text.substr(1, text.size() - 2) : text;
}

UsageError refusal(std::string_view item, const std::string& expected) {
  return UsageError(fmt::format("--rdzv-conf '{}': expected {}.", item, expected));
}

double number_of(std::string_view item, std::string_view value) {
  const auto number = parse_number<double>(value);
  if (number && *number >= 0 && *number <= kLongestTime) return *number;
  throw refusal(item, "a number of at least 0 after '='");
}

bool truth_of(std::string_view item, std::string_view value) {
  static const std::map<std::string, bool> kWords{
      {"1", true},  {"true", true},   {"t", true},  {"yes", true}, {"y", true},
      {"0", false}, {"false", false}, {"f", false}, {"no", false}, {"n", false}};
  if (const auto found = kWords.find(to_lower_case(value)); found != kWords.end()) return found->second;
  throw refusal(item, "true or false after '='");
}

const std::map<std::string_view, RendezvousTimes::Time RendezvousTimes::*> kTimes{
    {"join_timeout", &RendezvousTimes::join_timeout},
    {"last_call_timeout", &RendezvousTimes::last_call_timeout},
    {"close_timeout", &RendezvousTimes::close_timeout},
    {"keep_alive_interval", &RendezvousTimes::keep_alive_interval},
    {"timeout", &RendezvousTimes::timeout},
};

void read_item(std::string_view item, LaunchConfig& config) {
  const auto equals = std::min(item.find('='), item.size());
  const auto key = trim_blanks(item.substr(0, equals));
  const auto value = trim_blanks(item.substr(std::min(equals + 1, item.size())));
  if (key.empty() || value.empty()) throw refusal(item, "KEY=VALUE,KEY=VALUE,...");
  if (const auto time = kTimes.find(key); time != kTimes.end()) {
    config.times.*time->second = RendezvousTimes::Time(std::llround(number_of(item, value) * 1000));
  } else if (key == "keep_alive_max_attempt") {
    config.times.keep_alive_max_attempt = static_cast<int>(std::clamp(number_of(item, value), 1.0, 1e6));
  } else if (key == "is_host") {
    config.is_host = truth_of(item, value);
  } else if (key == "store_type") {
    // A file cannot show that a node is lost.
    if (value != "tcp")
      throw refusal(item, "store_type=tcp, as the nodes meet at an address and not in a file; leave it out");
  } else if (key == "read_timeout" || key == "heartbeat_timeout") {
    number_of(item, value);
    config.notices.push_back(
        fmt::format("--rdzv-conf: '{}' has no effect, because no launcher blocks on a single request", key));
  } else {
    config.notices.push_back(fmt::format("--rdzv-conf: '{}' has no effect here{}", key,
                                         key == "rank" ? ", give --node-rank" : " and is ignored"));
  }
}

}  // namespace

std::pair<int, int> parse_nodes(const std::string& text) {
  const auto colon = std::min(text.find(':'), text.size());
  const auto least = parse_whole_number(std::string_view(text).substr(0, colon), 1);
  const auto most =
      colon == text.size() ? least : parse_whole_number(std::string_view(text).substr(colon + 1), 1);
  if (least && most && *least <= *most) return {*least, *most};
  throw UsageError("--nnodes '" + text +
                   "': expected a number of nodes from 1, or MIN:MAX with 1 <= MIN <= MAX.");
}

net::HostPort parse_endpoint(const std::string& text, std::uint16_t default_port) {
  const auto bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  const auto colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  const auto host_end = bracket == std::string::npos ? std::min(colon, text.size()) : bracket + 1;
  const std::string host = net::without_brackets(text.substr(0, host_end));
  if (!host.empty() && host.find_first_of("[] ") == std::string::npos) {
    if (host_end == text.size()) return {host, default_port};
    const auto port = parse_whole_number(std::string_view(text).substr(host_end + 1), 0, 65535);
    if (port && text[host_end] == ':') return {host, static_cast<std::uint16_t>(*port)};
  }
  throw UsageError("--rdzv-endpoint '" + text +
                   "': expected HOST, HOST:PORT or [IPv6]:PORT, with a port up to 65535.");
}

void set_rendezvous(const Parsed& parsed, LaunchConfig& config) {
  const RunOptions& options = parsed.options;
  std::tie(config.min_nodes, config.max_nodes) = parse_nodes(options.nnodes);
  if (options.standalone && config.max_nodes > 1) {
    throw UsageError("--standalone and --nnodes '" + options.nnodes +
                     "' contradict each other: a standalone job has one node. Drop one.");
  }
  config.backend = backend_of(options, config.max_nodes);
  if (const auto items = remove_quotes(options.rdzv_conf); !items.empty()) {
    for (const auto item : split_at_commas(items)) read_item(trim_blanks(item), config);
  }
  plan_node_rank(parsed, config);
  config.endpoint = endpoint_of(config.backend, parsed);
  const bool has_master = parsed.was_given("master-addr") || parsed.was_given("master-port");
  if (config.backend == Backend::c10d && has_master)
    config.notices.push_back(
        fmt::format("--master-addr and --master-port are ignored with --rdzv-backend c10d: the nodes "
                    "meet at {} (--rdzv-endpoint)",
                    config.endpoint.text()));
}

}  // namespace lockstep::launch
