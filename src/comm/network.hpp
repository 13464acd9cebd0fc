#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/world.hpp"
#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/server.hpp"

namespace lockstep::comm {

/// The addresses of MASTER_ADDR, with MASTER_PORT. Throws CommunicationError when it does not resolve.
/// *Local*.
std::vector<net::Address> master_addresses(const World& world, net::Deadline deadline);

/// The store of a job, hosted by its rank 0. Where all ranks are on this host it listens at `addresses`
/// alone, of which the first is taken; else on every interface, because a host's own name often means
/// loopback to the host itself, and another address to others. With a job token, clients of other hosts must
/// prove it. Throws CommunicationError saying what the system answered, and who holds a port in use. *Local*.
std::shared_ptr<net::Server> host_store(const World& world, const std::vector<net::Address>& addresses);

/// The address of the interface by which this host reaches `target`, as others can reach it: where that is
/// loopback and the job is not on `one_host`, the first address of another interface. Sends nothing. *Local*.
std::string local_address_towards(const net::Address& target, bool one_host);

}  // namespace lockstep::comm
