#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/address.hpp"
#include "net/deadline.hpp"

namespace lockstep::net {

/// The addresses of a host, at least one. A numeric address is returned as it is, without asking anybody. A
/// name is looked up in a thread of its own, which is left to its fate at the deadline: a name server that
/// does not answer holds nobody up. Whoever asks for the same name meanwhile gets that thread's answer.
/// Answers that may change ("try again") are asked for again until the deadline. Throws CommunicationError
/// "cannot resolve 'x'" for a name that does not exist, TimeoutError at the deadline. *Local*; any thread.
std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline);
std::vector<Address> resolve(const HostPort& endpoint, Deadline deadline);

/// Whether the address is one of this host's own, loopback included. *Local*; any thread.
bool is_local(const Address& address);

/// The addresses of this host's interfaces that are up, without loopback; IPv4 before IPv6.
std::vector<Address> interface_addresses();

}  // namespace lockstep::net
