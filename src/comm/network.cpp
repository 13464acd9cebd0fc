#include "network.hpp"

#include <arpa/inet.h>
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

/// Rewrites the address to "any interface" of its family, keeping the port.
void widen(sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    v4.sin_addr.s_addr = htonl(INADDR_ANY);
    std::memcpy(address, &v4, sizeof(v4));
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    v6.sin6_addr = in6addr_any;
    std::memcpy(address, &v6, sizeof(v6));
  }
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

ListenSocket::ListenSocket(const std::string& host, std::uint16_t port) : descriptor_(-1) {
  const Addresses addresses = resolve(host, port, SOCK_STREAM);
  sockaddr* address = addresses->ai_addr;
  if (!is_loopback(address)) widen(address);
  descriptor_ = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  const bool listening =
      descriptor_ >= 0 && setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(descriptor_, address, addresses->ai_addrlen) == 0 && listen(descriptor_, SOMAXCONN) == 0;
  if (listening) return;
  const int reason = errno;
  if (descriptor_ >= 0) close(descriptor_);
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

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  const Addresses addresses = resolve(host, port, SOCK_DGRAM);
  // Connecting a datagram socket picks the route and sends nothing.
  const int probe = socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local{};
  socklen_t length = sizeof(local);
  const bool known = probe >= 0 && connect(probe, addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  if (probe >= 0) close(probe);
  return known ? numeric(local, length) : "";
}

}  // namespace lockstep::comm
