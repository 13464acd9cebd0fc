#include "net/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace lockstep::net {
namespace {

std::string bracketed(const std::string& host, std::uint16_t port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

const sockaddr_in& four(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in*>(address); }
const sockaddr_in6& six(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in6*>(address); }

/// The IPv4 address inside an IPv6 one.
sockaddr_in unmapped(const sockaddr_in6& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = address.sin6_port;
  std::memcpy(&result.sin_addr, address.sin6_addr.s6_addr + 12, sizeof result.sin_addr);
  return result;
}

template <int (*ask)(int, sockaddr*, socklen_t*)>
Address end_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* name = reinterpret_cast<sockaddr*>(&storage);
  return ask(socket, name, &size) == 0 ? Address(name, size) : Address();
}

int socket_name(int socket, sockaddr* name, socklen_t* size) { return getsockname(socket, name, size); }
int peer_name(int socket, sockaddr* name, socklen_t* size) { return getpeername(socket, name, size); }

}  // namespace

std::string HostPort::text() const { return bracketed(without_brackets(host), port); }

Address::Address(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six(address).sin6_addr)) {
    const sockaddr_in inner = unmapped(six(address));
    std::memcpy(&storage_, &inner, sizeof inner);
    size_ = sizeof inner;
  } else if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
    std::memcpy(&storage_, address, size);
    size_ = size;
  }
}

std::optional<Address> Address::numeric(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string plain = without_brackets(host);
  // Without a host the system would take "this host".
  if (plain.empty() || getaddrinfo(plain.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  return Address(found->ai_addr, found->ai_addrlen);
}

Address Address::loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

std::string Address::host() const {
  char text[NI_MAXHOST] = {};
  const bool known =
      size_ > 0 && getnameinfo(data(), size_, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? text : "nowhere";
}

std::string Address::text() const { return size_ == 0 ? host() : bracketed(host(), port()); }

std::uint16_t Address::port() const {
  if (size_ == 0) return 0;
  return ntohs(family() == AF_INET ? four(data()).sin_port : six(data()).sin6_port);
}

Address Address::with_port(std::uint16_t port) const {
  Address result = *this;
  // The port lies at the same place in both families.
  reinterpret_cast<sockaddr_in*>(&result.storage_)->sin_port = htons(port);
  return result;
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return (ntohl(four(data()).sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six(data()).sin6_addr) != 0;
}

bool Address::is_unspecified() const {
  if (family() == AF_INET) return four(data()).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six(data()).sin6_addr) != 0;
}

bool Address::same_host(const Address& other) const {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return four(data()).sin_addr.s_addr == four(other.data()).sin_addr.s_addr;
  return family() == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&six(data()).sin6_addr, &six(other.data()).sin6_addr) != 0;
}

bool operator==(const Address& a, const Address& b) { return a.same_host(b) && a.port() == b.port(); }

Address local_address(int socket) { return end_of<socket_name>(socket); }
Address remote_address(int socket) { return end_of<peer_name>(socket); }

}  // namespace lockstep::net
