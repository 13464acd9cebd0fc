#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/deadline.hpp"

namespace lockstep::net {

/// What a user types: a name or a numeric address, and a port.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// "host:29400"; an IPv6 address stands in brackets.
  std::string text() const;
};

/// A numeric IPv4 or IPv6 address with a port. IPv4 inside IPv6 (::ffff:10.0.0.1) is kept as IPv4, so that
/// one host compares equal whichever socket it came by. No member asks a name server.
class Address {
 public:
  /// No address; text() is "nowhere".
  Address() = default;
  Address(const sockaddr* address, socklen_t size);

  /// Reads "10.0.0.1", "::1", "[::1]" or "fe80::1%eth0"; nothing for a name.
  static std::optional<Address> numeric(const std::string& host, std::uint16_t port);
  static Address loopback(std::uint16_t port);

  /// "10.0.0.1:29400" or "[::1]:29400".
  std::string text() const;
  std::string host() const;
  std::uint16_t port() const;
  Address with_port(std::uint16_t port) const;

  bool is_loopback() const;
  /// 0.0.0.0 or ::, at which a socket listens on every interface.
  bool is_unspecified() const;
  /// Whether both have the same address, whatever their ports.
  bool same_host(const Address& other) const;

  int family() const { return storage_.ss_family; }
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

bool operator==(const Address& a, const Address& b);

/// The two ends of a connected or bound socket; an empty Address when the system does not know.
Address local_address(int socket);
Address remote_address(int socket);

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
