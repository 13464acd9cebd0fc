#include "comm/network.hpp"

#include "lockstep/core/error.hpp"
#include "net/resolve.hpp"
#include "net/socket.hpp"

namespace lockstep::comm {
namespace {

bool is_on_one_host(const World& world) { return world.local_world_size == world.world_size; }

net::FileDescriptor listen(const World& world, const std::vector<net::Address>& addresses) {
  if (is_on_one_host(world) && net::is_local(addresses.front())) return net::listen_at(addresses.front());
  return net::listen_everywhere(world.master_port);
}

}  // namespace

std::vector<net::Address> master_addresses(const World& world, net::Deadline deadline) {
  try {
    return net::resolve(world.master_addr, world.master_port, deadline);
  } catch (const CommunicationError& error) {
    throw CommunicationError("MASTER_ADDR='" + world.master_addr + "' does not resolve: " + error.what());
  }
}

std::shared_ptr<net::Server> host_store(const World& world, const std::vector<net::Address>& addresses) {
  net::ServerOptions options;
  options.secret = world.job_token;
  options.every_host = world.job_token.empty();
  // A rank has nobody to ask.
  options.verify_peer_uid = false;
  try {
    return std::make_shared<net::Server>(listen(world, addresses), options);
  } catch (const CommunicationError& error) {
    throw CommunicationError("rank 0 cannot listen on port " + std::to_string(world.master_port) +
                             " (MASTER_ADDR='" + world.master_addr + "'): " + error.what() +
                             " The port is --master-port (MASTER_PORT); it may be left to the launcher.");
  }
}

std::string local_address_towards(const net::Address& target, bool one_host) {
  const net::Address local = net::local_address_towards(target);
  if (local.size() == 0) return "";
  if (one_host || !local.is_loopback()) return local.host();
  const auto others = net::interface_addresses();
  return (others.empty() ? local : others.front()).host();
}

}  // namespace lockstep::comm
