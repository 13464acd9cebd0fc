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

// TCP sockets. Every socket made here closes on exec, sends at once (TCP_NODELAY), and is given up by the
// system when the other host has been silent for about half a minute although we asked (keep-alive,
// TCP_USER_TIMEOUT). Every function is *Local* and may be called from any thread.

/// Another program listens at the address already.
class AddressInUse : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Listens at one address. Port 0 takes a free one: see local_address(). Throws CommunicationError saying
/// what the system answered; for a port in use AddressInUse, saying which process holds it. Non-blocking.
FileDescriptor listen_at(const Address& address);
/// The same on the loopback interface: nobody outside this host can connect.
FileDescriptor listen_on_loopback(std::uint16_t port);
/// The same on every interface, IPv6 and IPv4 by one socket where the host has both.
FileDescriptor listen_everywhere(std::uint16_t port);

/// A TCP port that nobody on this host listens on at the moment, over IPv4 or IPv6. Nothing holds it: whoever
/// binds it first has it. Throws CommunicationError when the system has none.
std::uint16_t free_port();

struct Accepted {
  FileDescriptor socket;
  Address address;
};

/// The next connection that waits at a listening socket, non-blocking; nothing when there is none, or when
/// the system refuses: errno tells (EAGAIN: none).
std::optional<Accepted> accept_from(int listener);

/// Connects to the first of `addresses` that answers. They are tried beside each other, so that one behind a
/// silent firewall does not hold up the rest; those that refuse are tried again, because a listener may not
/// have started yet. The socket is non-blocking. Throws TimeoutError at the deadline, naming every address
/// and what came of it.
FileDescriptor connect_to(const std::vector<Address>& addresses, Deadline deadline);

/// Sends all of it. Throws TimeoutError at the deadline, CommunicationError when the connection is gone.
void send_all(int socket, std::string_view bytes, Deadline deadline);

/// Receives exactly `count` bytes into `into`. Throws as send_all does; the text of a closed connection is
/// "the connection was closed".
void receive_exactly(int socket, char* into, std::size_t count, Deadline deadline);

/// Receives what is there, up to `count` bytes and at least one; 0: closed by the other end. Throws as
/// send_all does.
std::size_t receive_some(int socket, char* into, std::size_t count, Deadline deadline);

/// The address by which this host reaches `target`. Sends nothing. Empty when there is no way.
Address local_address_towards(const Address& target);

}  // namespace lockstep::net
