// `lockstep run --check` starts this program as every rank of a job. It checks that all ranks can connect to
// each other and compute correct sums, and measures how fast.
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/collectives.hpp"
#include "core/json_text.hpp"
#include "core/process_identity.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/train/accelerator.hpp"
#include "net/socket.hpp"

namespace {

using namespace lockstep;
using nlohmann::json;

// Connections between all ranks.

constexpr std::chrono::seconds kTimeout{60};
constexpr std::chrono::seconds kConnectTime{5};

/// Numeric addresses only: no name lookups.
net::Address address_of(const std::string& host, std::uint16_t port) {
  if (const auto address = net::Address::numeric(host, port)) return *address;
  throw CommunicationError(fmt::format("'{}' is not an address", host));
}

/// Why no connection can be made; empty: it can.
std::string obstacle(const std::string& host, std::uint16_t port) {
  try {
    net::connect_to({address_of(host, port)}, net::Clock::now() + kConnectTime);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string named(int rank, const json& facts) {
  return fmt::format("rank {} ({})", rank, facts.at("name").get<std::string>());
}

/// Publishes `own` under this key, and returns the values of all ranks.
std::vector<json> exchanged(const World& world, const Store& store, const std::string& key, const json& own) {
  store.set(fmt::format("{}/{}", key, world.rank), json_text(own));
  std::vector<json> all;
  for (int rank = 0; rank < world.world_size; ++rank) {
    const std::string theirs = fmt::format("{}/{}", key, rank);
    if (!store.wait(theirs, kTimeout))
      throw TimeoutError(fmt::format("rank {} did not say '{}' within 60 s", rank, key), {rank});
    all.push_back(json::parse(store.get(theirs, kTimeout)));
  }
  return all;
}

/// One line for each rank that this one cannot reach.
std::vector<std::string> failures_of(const World& world, const std::vector<json>& ranks) {
  std::vector<std::string> failures;
  const auto& self = ranks[static_cast<std::size_t>(world.rank)];
  for (int rank = 0; rank < world.world_size; ++rank) {
    const json& other = ranks[static_cast<std::size_t>(rank)];
    const std::string host = other.at("host");
    const auto port = other.at("port").get<std::uint16_t>();
    const std::string why = rank == world.rank ? "" : obstacle(host, port);
    if (why.empty()) continue;
    failures.push_back(fmt::format("{} cannot reach {} at {}: {}", named(world.rank, self),
                                   named(rank, other), net::HostPort{host, port}.text(), why));
  }
  return failures;
}

/// Tries a TCP connection from every rank to every other one, before anything else uses them. Returns the
/// failures of all ranks, one line each: "rank 1 (node1) cannot reach rank 0 (node0) at 10.0.0.1:40001: ...".
/// *Collective*. Throws TimeoutError that names a rank that did not take part.
std::vector<std::string> unreachable_pairs(const World& world, const Store& store) {
  const std::string host = store.local_address().empty() ? "127.0.0.1" : store.local_address();
  // The kernel completes connections; accept() is not needed.
  const net::FileDescriptor listener = net::listen_at(address_of(host, 0));
  const int port = net::local_address(listener.get()).port();
  const auto ranks =
      exchanged(world, store, "here", {{"host", host}, {"port", port}, {"name", this_process().host}});
  std::vector<std::string> all;
  for (const auto& lines : exchanged(world, store, "tried", failures_of(world, ranks)))
    all.insert(all.end(), lines.begin(), lines.end());
  return all;
}

// Speed of each link.

std::string formatted(double number, const char* unit) {
  const int decimals = number < 10 ? 2 : number < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", number, decimals, unit);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return formatted(seconds * 1e6, "us");
  return seconds < 1 ? formatted(seconds * 1e3, "ms") : formatted(seconds, "s");
}

std::string bandwidth_text(double bytes_per_second) {
  return bytes_per_second < 1e9 ? formatted(bytes_per_second / 1e6, "MB/s")
                                : formatted(bytes_per_second / 1e9, "GB/s");
}

constexpr std::size_t kAllPairsUpTo = 8;
constexpr std::int64_t kSmall = 8;
constexpr std::int64_t kLarge = 4 << 20;

/// A link between two ranks: latency in seconds (one way), and bandwidth in bytes per second.
struct Link {
  int first = 0;
  int second = 0;
  double latency = 0;
  double bandwidth = 0;
};

template <class Item, class Number = std::identity>
double median(std::vector<Item> items, Number number = {}) {
  const auto middle = items.begin() + std::ssize(items) / 2;
  std::ranges::nth_element(items, middle, {}, number);
  return std::invoke(number, *middle);
}

/// The median time of one way, of `rounds` round trips.
double one_way(const ProcessGroup& group, const Link& link, std::int64_t bytes, int rounds) {
  const at::Tensor tensor = at::zeros({bytes}, at::TensorOptions(at::kByte).device(group.device()));
  const bool leads = group.rank() == link.first;
  const int other = leads ? link.second : link.first;
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = net::Clock::now();
    if (leads) group.send(tensor, other);
    group.recv(tensor, other);
    if (!leads) group.send(tensor, other);
    static_cast<void>(tensor[0].item());
    // The first round sets up the connection.
    if (round > 0) times.push_back(std::chrono::duration<double>(net::Clock::now() - start).count() / 2);
  }
  return median(times);
}

/// The ranks whose links are measured: all, or the first one of each node.
std::vector<int> ends(const std::vector<int>& nodes_of_ranks) {
  std::set<int> nodes;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < nodes_of_ranks.size(); ++rank) {
    const bool first = nodes.insert(nodes_of_ranks[rank]).second;
    if (first || nodes_of_ranks.size() <= kAllPairsUpTo) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// Measured by its two ranks, and broadcast to all. The others wait, so that links do not disturb each other.
Link measured(const ProcessGroup& group, int first, int second) {
  Link link{first, second};
  if (group.rank() == first || group.rank() == second) {
    link.latency = one_way(group, link, kSmall, 30);
    link.bandwidth = static_cast<double>(kLarge) / one_way(group, link, kLarge, 5);
  }
  const auto numbers = group.broadcast_object(json{link.latency, link.bandwidth}, first);
  return {first, second, numbers.at(0).get<double>(), numbers.at(1).get<double>()};
}

bool is_slow(const Link& link, const std::vector<Link>& all) {
  if (all.size() < 3) return false;
  return link.bandwidth < median(all, &Link::bandwidth) / 2 || link.latency > median(all, &Link::latency) * 3;
}

/// Measures links one by one: all pairs of up to 8 ranks, otherwise all pairs of nodes (between their first
/// ranks). Returns one line per link, the same text on every rank. Links with less than half of the median
/// bandwidth or more than three times the median latency are marked SLOW. *Collective*.
std::string link_table(const ProcessGroup& group, const std::vector<int>& nodes_of_ranks) {
  const std::vector<int> ranks = ends(nodes_of_ranks);
  std::vector<Link> links;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = i + 1; j < ranks.size(); ++j) links.push_back(measured(group, ranks[i], ranks[j]));
  }
  std::string text = fmt::format("  {:>11}  {:>8}  {:>9}\n", "ranks", "latency", "bandwidth");
  for (const auto& link : links) {
    text += fmt::format("  {:>11}  {:>8}  {:>9}{}\n", fmt::format("{} - {}", link.first, link.second),
                        time_text(link.latency), bandwidth_text(link.bandwidth),
                        is_slow(link, links) ? "  SLOW" : "");
  }
  return text;
}

// The check.

struct Measured {
  const char* collective;
  const char* size;
  std::int64_t bytes;
  int rounds;
};
constexpr Measured kMeasured[] = {
    {"barrier", "", 0, 20},
    {"all_reduce", "4 B", 4, 50},
    {"all_reduce", "4 KiB", 4 << 10, 50},
    {"all_reduce", "256 KiB", 256 << 10, 20},
    {"all_reduce", "4 MiB", 4 << 20, 8},
    {"all_reduce", "32 MiB", 32 << 20, 3},
};

void say(const World& world, const std::string& text) {
  if (world.is_main_process()) std::cout << text << std::flush;
}

void check_reach(const World& world, const Store& store) {
  const auto failures = unreachable_pairs(world, store.with_prefix("check"));
  for (const auto& line : failures) say(world, line + "\n");
  if (failures.empty()) {
    const int pairs = world.world_size * (world.world_size - 1);
    return say(world, fmt::format("reach: all {} connections between ranks can be made\n", pairs));
  }
  const std::string more = failures.size() == 1 ? "" : fmt::format(", and {} more", failures.size() - 1);
  throw CommunicationError(
      fmt::format("{}{}. Look at firewalls and routes between these hosts", failures.front(), more));
}

void check_collectives(const World& world, const ProcessGroup& group) {
  constexpr const char* kRow = "  {:>10}  {:>7}  {:>8}  {:>9}  {:>6}\n";
  say(world, fmt::format(kRow, "operation", "size", "time", "bandwidth", "result"));
  for (const auto& [collective, size, bytes, rounds] : kMeasured) {
    bench::Options options;
    options.iterations = rounds;
    options.warmup = 1;
    const auto found = bench::measure(collective, group, options, bytes);
    bench::require_right(found, group.rank());
    const std::string bandwidth = bytes == 0 ? "" : bandwidth_text(found.algorithm_bandwidth);
    say(world, fmt::format(kRow, collective, size, time_text(found.seconds), bandwidth, "ok"));
  }
}

int run() {
  const World world = World::from_environment();
  if (world.world_size == 1)
    throw UsageError("a check needs two ranks or more: give --nproc-per-node or --nnodes");
  const Store store = Store::connect(world, kTimeout);
  say(world, fmt::format("check: {} ranks on {} node(s)\n", world.world_size, world.group_world_size));
  check_reach(world, store);
  const ProcessGroup group(
      world.rank, world.world_size, store,
      {.device = choose_device("auto", world.local_rank), .timeout = kTimeout, .join_timeout = kTimeout});
  std::vector<int> nodes;
  for (const auto& node : group.all_gather_object(json(world.group_rank))) nodes.push_back(node.get<int>());
  check_collectives(world, group);
  say(world, link_table(group, nodes));
  say(world, "check: passed\n");
  group.barrier();
  return 0;
}

}  // namespace

int main() { return run_program("lockstep-check", run); }
