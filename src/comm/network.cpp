#include "network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, std::uint16_t port, int socket_type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0) {
    throw CommunicationError(
        "MASTER_ADDR='" + host + "' does not resolve to an address (" + gai_strerror(failure) +
        "): expected the name or address of rank 0's host, known on every host of the job");
  }
  return {found, &freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof(v6));
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

/// The address to listen on: `loopback` if there is one, else any interface, by IPv6 and IPv4 together.
struct ListenAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  ListenAddress(const sockaddr* loopback, socklen_t loopback_length, std::uint16_t port) {
    if (loopback != nullptr) {
      std::memcpy(&storage, loopback, loopback_length);
      length = loopback_length;
      return;
    }
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(port);
    std::memcpy(&storage, &any, sizeof(any));
    length = sizeof(any);
  }

  /// For hosts without IPv6.
  static ListenAddress any_of_ipv4(std::uint16_t port) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    return {reinterpret_cast<const sockaddr*>(&any), sizeof(any), port};
  }
};

/// A socket that listens there, or -1 with errno set.
int listen_at(const ListenAddress& address) {
  const int descriptor = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6)
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (bind(descriptor, where, address.length) == 0 && listen(descriptor, SOMAXCONN) == 0) return descriptor;
  const int reason = errno;
  close(descriptor);
  errno = reason;
  return -1;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  const int failure = getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof(text),
                                  nullptr, 0, NI_NUMERICHOST);
  return failure == 0 ? text : "";
}

/// Whether the address takes a connection within `patience`.
bool listens(const addrinfo& address, std::chrono::milliseconds patience) {
  const int probe = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  bool connected = connect(probe, address.ai_addr, address.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS) {
    pollfd ready{probe, POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t length = sizeof(error);
    connected = poll(&ready, 1, static_cast<int>(patience.count())) == 1 &&
                getsockopt(probe, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }
  close(probe);
  return connected;
}

}  // namespace

bool await_listener(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{20}, kPatience{1000};
  const auto deadline = Clock::now() + timeout;
  const Addresses addresses = resolve(host, port, SOCK_STREAM);
  do {
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (listens(*address, std::clamp(left, std::chrono::milliseconds(0), kPatience))) return true;
    }
    std::this_thread::sleep_for(kPause);
  } while (Clock::now() < deadline);
  return false;
}

ListenSocket::ListenSocket(const std::string& host, std::uint16_t port, bool one_host) : descriptor_(-1) {
  const Addresses addresses = resolve(host, port, SOCK_STREAM);
  const bool private_to_host = one_host && is_loopback(addresses->ai_addr);
  descriptor_ =
      listen_at(ListenAddress(private_to_host ? addresses->ai_addr : nullptr, addresses->ai_addrlen, port));
  if (descriptor_ < 0 && !private_to_host && errno != EADDRINUSE) {
    descriptor_ = listen_at(ListenAddress::any_of_ipv4(port));
  }
  if (descriptor_ >= 0) return;
  const int reason = errno;
  throw CommunicationError("rank 0 cannot listen on port " + std::to_string(port) + " (MASTER_ADDR='" + host +
                           "'): " + std::strerror(reason) +
                           (reason == EADDRINUSE
                                ? ". Another program or job holds it: choose another --master-port "
                                  "(MASTER_PORT), or leave it to the launcher"
                                : ""));
}

ListenSocket::~ListenSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

int ListenSocket::release() { return std::exchange(descriptor_, -1); }

namespace {

/// The address of the first interface that is up and not loopback, IPv4 before IPv6; "" where there is none.
std::string address_of_other_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      sockaddr_storage address{};
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address, entry->ifa_addr, length);
      return numeric(address, length);
    }
  }
  return "";
}

}  // namespace

std::string local_address_towards(const std::string& host, std::uint16_t port, bool one_host) {
  const Addresses addresses = resolve(host, port, SOCK_DGRAM);
  // Connecting a datagram socket picks the route and sends nothing.
  const int probe = socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local{};
  socklen_t length = sizeof(local);
  const bool known = probe >= 0 && connect(probe, addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  if (probe >= 0) close(probe);
  if (!known) return "";
  const bool visible_to_others = !is_loopback(reinterpret_cast<const sockaddr*>(&local));
  const std::string other = one_host || visible_to_others ? "" : address_of_other_interface();
  return other.empty() ? numeric(local, length) : other;
}

}  // namespace lockstep::comm
