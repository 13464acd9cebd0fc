#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "checks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"
#include "net/socket.hpp"

namespace check {
namespace {

using nlohmann::json;
namespace net = lockstep::net;

constexpr std::chrono::seconds kOthersTime{60};
constexpr std::chrono::seconds kConnectTime{5};

/// Numeric addresses only: nobody is asked for names.
net::Address address_of(const std::string& host, std::uint16_t port) {
  if (const auto address = net::Address::numeric(host, port)) return *address;
  throw lockstep::CommunicationError(fmt::format("'{}' is no address", host));
}

/// Why no connection can be made; empty: it can.
std::string obstacle(const std::string& host, std::uint16_t port) {
  try {
    net::connect_to({address_of(host, port)}, net::Clock::now() + kConnectTime);
    return "";
  } catch (const lockstep::Error& error) {
    return error.what();
  }
}

std::string named(int rank, const json& facts) {
  return fmt::format("rank {} ({})", rank, facts.at("name").get<std::string>());
}

json await(const lockstep::Store& store, const std::string& key, int rank) {
  const std::string own = fmt::format("{}/{}", key, rank);
  if (store.wait(own, kOthersTime)) return json::parse(store.get(own, kOthersTime));
  throw lockstep::TimeoutError(fmt::format("rank {} did not say '{}' within 60 s", rank, key), {rank});
}

/// A line for each rank that this one cannot reach.
std::vector<std::string> failures_of(const lockstep::World& world, const std::vector<json>& ranks) {
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

}  // namespace

std::vector<std::string> unreachable_pairs(const lockstep::World& world, const lockstep::Store& store) {
  const std::string host = store.local_address().empty() ? "127.0.0.1" : store.local_address();
  // The kernel completes connections; nobody accepts them.
  const net::FileDescriptor listener = net::listen_at(address_of(host, 0));
  const int port = net::local_address(listener.get()).port();
  store.set(fmt::format("here/{}", world.rank),
            json{{"host", host}, {"port", port}, {"name", lockstep::this_process().host}}.dump());
  std::vector<json> ranks;
  for (int rank = 0; rank < world.world_size; ++rank) ranks.push_back(await(store, "here", rank));
  store.set(fmt::format("tried/{}", world.rank), json(failures_of(world, ranks)).dump());
  std::vector<std::string> all;
  for (int rank = 0; rank < world.world_size; ++rank) {
    for (const auto& line : await(store, "tried", rank)) all.push_back(line);
  }
  return all;
}

}  // namespace check
