#include "net/socket_options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lockstep::net {

FileDescriptor new_socket(int family) {
  return FileDescriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

void set_stream_options(int socket) {
  constexpr int kSilenceSeconds = 10, kPauseSeconds = 5, kAttempts = 4, kUnansweredMilliseconds = 30'000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilenceSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kPauseSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kAttempts);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
}

}  // namespace lockstep::net
