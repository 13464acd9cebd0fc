#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::net {

// TCP sockets. All of them close on exec. Connections send at once (TCP_NODELAY), and the system closes them
// if the other host does not answer for about half a minute (keep-alive, TCP_USER_TIMEOUT). All functions are
// *Local* and may be called from any thread.

/// Another program already listens at the address.
class AddressInUse : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Listens at one address. Port 0 selects a free one: see local_address(). Throws CommunicationError with the
/// system's reason; AddressInUse, naming the process that holds it, if the port is in use. Non-blocking.
FileDescriptor listen_at(const Address& address);
/// The same on the loopback interface: other hosts cannot connect.
FileDescriptor listen_on_loopback(std::uint16_t port);
/// The same on all interfaces, for IPv6 and IPv4 with one socket if the host has both.
FileDescriptor listen_everywhere(std::uint16_t port);

/// A TCP port on which no process of this host listens, over IPv4 or IPv6. It is not reserved: another
/// process may bind it first. Throws CommunicationError if there is none.
std::uint16_t free_port();

struct Accepted {
  FileDescriptor socket;
  Address address;
};

/// The next pending connection of a listening socket, non-blocking; nothing if there is none or the system
/// refuses, see errno (EAGAIN: none).
std::optional<Accepted> accept_from(int listener);

/// Connects to the first of `addresses` that answers. They are tried concurrently, so that an address behind
/// a firewall does not delay the others; those that refuse are retried, because the listener may not have
/// started yet. The socket is non-blocking. Throws TimeoutError at the deadline, naming each address and its
/// error.
FileDescriptor connect_to(const std::vector<Address>& addresses, Deadline deadline);

/// Sends all bytes. Throws TimeoutError at the deadline, CommunicationError if the connection is lost.
void send_all(int socket, std::string_view bytes, Deadline deadline);

/// Receives exactly `count` bytes into `into`. Throws as send_all does; for a closed connection the text
/// begins with "the connection was closed".
void receive_exactly(int socket, char* into, std::size_t count, Deadline deadline);

/// Receives the available bytes, at least one and at most `count`; 0: closed by the other end. Throws as
/// send_all does.
std::size_t receive_some(int socket, char* into, std::size_t count, Deadline deadline);

/// The local address from which this host reaches `target`. Sends nothing. Empty if there is no route.
Address local_address_towards(const Address& target);

}  // namespace lockstep::net
