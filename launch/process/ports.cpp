#include "process/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// The port that the system gives to a socket bound to every address of the family; 0: none.
template <class Address>
std::uint16_t bind_anywhere(int family, Address address, in_port_t Address::*port) {
  const int socket_fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) return 0;
  socklen_t size = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(socket_fd, name, size) == 0 && getsockname(socket_fd, name, &size) == 0;
  const int failure = errno;
  close(socket_fd);
  errno = failure;
  return bound ? ntohs(address.*port) : 0;
}

}  // namespace

std::uint16_t free_port() {
  // An IPv6 socket takes the IPv4 port too, which is how rank 0 will listen; hosts without IPv6 have IPv4.
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  if (const auto port = bind_anywhere(AF_INET6, six, &sockaddr_in6::sin6_port)) return port;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (const auto port = bind_anywhere(AF_INET, four, &sockaddr_in::sin_port)) return port;
  throw Error(std::string("no free TCP port on this host (") + std::strerror(errno) +
              "): name one with --master-port.");
}

}  // namespace lockstep::launch
