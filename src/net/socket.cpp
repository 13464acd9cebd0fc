#include "net/socket.hpp"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/port_holder.hpp"
#include "net/socket_options.hpp"

namespace lockstep::net {
namespace {

constexpr int kBacklog = 4096;

[[noreturn]] void fail_to_listen(const Address& address, int reason) {
  const std::string text = fmt::format("cannot listen at {}: {}.", address.text(), std::strerror(reason));
  if (reason == EADDRINUSE) {
    const std::string holder = port_holder(address.port());
    throw AddressInUse(fmt::format("{} The port is held by {}. Choose another port, or end that program.",
                                   text, holder.empty() ? "a program that has just ended" : holder));
  }
  throw CommunicationError(reason == EADDRNOTAVAIL ? text + " That is no address of this host." : text);
}

Address everywhere(int family, std::uint16_t port) {
  sockaddr_storage storage{};
  storage.ss_family = static_cast<sa_family_t>(family);
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return Address(reinterpret_cast<const sockaddr*>(&storage), size).with_port(port);
}

/// A socket that listens there, or none, with errno set.
FileDescriptor try_to_listen(const Address& address) {
  FileDescriptor socket = new_socket(address.family());
  if (!socket) return socket;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.get(), address.data(), address.size()) == 0 && listen(socket.get(), kBacklog) == 0)
    return socket;
  const int reason = errno;
  socket.reset();
  errno = reason;
  return socket;
}

[[noreturn]] void fail_to_talk(const char* what) {
  throw CommunicationError(std::string(what) + " failed: " + std::strerror(errno) + ".");
}

void await(int socket, short events, Deadline deadline, const char* what) {
  if (!await_ready(socket, events, deadline)) throw TimeoutError(std::string(what) + ": timed out, no answer in time.");
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

FileDescriptor listen_at(const Address& address) {
  FileDescriptor socket = try_to_listen(address);
  if (!socket) fail_to_listen(address, errno);
  return socket;
}

FileDescriptor listen_on_loopback(std::uint16_t port) { return listen_at(Address::loopback(port)); }

FileDescriptor listen_everywhere(std::uint16_t port) {
  FileDescriptor socket = try_to_listen(everywhere(AF_INET6, port));
  if (socket) return socket;
  if (errno == EADDRINUSE) fail_to_listen(everywhere(AF_INET6, port), errno);
  return listen_at(everywhere(AF_INET, port));
}

std::uint16_t free_port() { return local_address(listen_everywhere(0).get()).port(); }

std::optional<Accepted> accept_from(int listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* name = reinterpret_cast<sockaddr*>(&storage);
  FileDescriptor socket(accept4(listener, name, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return std::nullopt;
  set_stream_options(socket.get());
  return Accepted{std::move(socket), Address(name, size)};
}

void send_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (would_block()) {
      await(socket, POLLOUT, deadline, "send");
    } else {
      fail_to_talk("send");
    }
  }
}

std::size_t receive_some(int socket, char* into, std::size_t count, Deadline deadline) {
  for (;;) {
    const ssize_t got = recv(socket, into, count, MSG_DONTWAIT);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (!would_block()) fail_to_talk("receive");
    await(socket, POLLIN, deadline, "receive");
  }
}

void receive_exactly(int socket, char* into, std::size_t count, Deadline deadline) {
  while (count > 0) {
    const std::size_t got = receive_some(socket, into, count, deadline);
    if (got == 0) throw CommunicationError("the connection was closed by the other end.");
    into += got;
    count -= got;
  }
}

Address local_address_towards(const Address& target) {
  // Connecting a datagram socket picks the route and sends nothing.
  const FileDescriptor probe(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool known = probe && ::connect(probe.get(), target.data(), target.size()) == 0;
  return known ? local_address(probe.get()).with_port(0) : Address();
}

}  // namespace lockstep::net
