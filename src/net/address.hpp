#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/deadline.hpp"

namespace lockstep::net {

/// A host name or numeric address and a port, as the user entered them.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// "host:29400"; an IPv6 address is in brackets.
  std::string text() const;
};

/// An IPv6 address without its brackets; other hosts as they are.
std::string without_brackets(const std::string& host);

/// A numeric IPv4 or IPv6 address with a port. IPv4-mapped IPv6 addresses (::ffff:10.0.0.1) are stored as
/// IPv4, so that a host compares equal over either kind of socket. No member queries a name server.
class Address {
 public:
  /// No address; text() is "nowhere".
  Address() = default;
  Address(const sockaddr* address, socklen_t size);

  /// Parses "10.0.0.1", "::1", "[::1]" or "fe80::1%eth0"; nothing for a name.
  static std::optional<Address> numeric(const std::string& host, std::uint16_t port);
  static Address loopback(std::uint16_t port);

  /// "10.0.0.1:29400" or "[::1]:29400".
  std::string text() const;
  std::string host() const;
  std::uint16_t port() const;
  Address with_port(std::uint16_t port) const;

  bool is_loopback() const;
  /// 0.0.0.0 or ::, the wildcard address of all interfaces.
  bool is_unspecified() const;
  /// Whether both have the same address, regardless of ports.
  bool same_host(const Address& other) const;

  int family() const { return storage_.ss_family; }
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

bool operator==(const Address& a, const Address& b);

/// The two ends of a connected or bound socket; an empty Address if the system does not provide it.
Address local_address(int socket);
Address remote_address(int socket);

/// The addresses of a host, at least one. A numeric address is returned without a query. A name is looked up
/// in a separate thread, which is abandoned at the deadline, so that a name server that does not answer
/// blocks nobody. Concurrent calls for the same name share that thread's answer. A name that does not exist
/// (yet: pods and virtual machines get theirs when they start) is asked for again until the deadline, at
/// growing intervals of up to 2 s. Then throws TimeoutError "cannot resolve 'x'" with the resolver's reason.
/// *Local*; any thread.
std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline);
std::vector<Address> resolve(const HostPort& endpoint, Deadline deadline);

/// Whether the address belongs to this host, including loopback. *Local*; any thread.
bool is_local(const Address& address);

/// The addresses of this host's interfaces that are up, without loopback; IPv4 before IPv6.
std::vector<Address> interface_addresses();

}  // namespace lockstep::net
