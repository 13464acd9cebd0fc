#include "shm/local_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {
namespace {

constexpr int kKind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;  // A greeting is one packet.
constexpr int kBacklog = 4096;  // Every higher rank connects before anybody accepts.

struct LocalName {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit LocalName(const std::string& name) {
    address.sun_family = AF_UNIX;
    // A zero in front makes the name abstract.
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof(address.sun_path) - 1));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

net::FileDescriptor make_socket() {
  net::FileDescriptor made(socket(AF_UNIX, kKind, 0));
  if (!made) throw_system_error("cannot make a local socket");
  return made;
}

void await(int socket, short events, net::Deadline deadline, const char* what) {
  if (!net::await_ready(socket, events, deadline)) throw TimeoutError(std::string(what) + " took too long");
}

/// Room for one descriptor beside a packet.
union Ancillary {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

msghdr message_of(iovec& payload, Ancillary& ancillary) {
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof(ancillary.bytes);
  return message;
}

}  // namespace

net::FileDescriptor listen_locally(const std::string& name) {
  auto listener = make_socket();
  const LocalName address(name);
  if (bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), kBacklog) != 0) {
    throw_system_error("cannot listen on a local socket");
  }
  return listener;
}

net::FileDescriptor connect_locally(const std::string& name, net::Deadline deadline) {
  auto socket = make_socket();
  const LocalName address(name);
  for (;;) {
    if (connect(socket.get(), address.get(), address.length) == 0) return socket;
    // A full backlog empties as the other rank accepts; net.core.somaxconn may have made it short.
    if (errno != EAGAIN && errno != EINTR) throw_system_error("cannot reach its local socket");
    if (net::left_until(deadline) == net::Milliseconds(0)) throw TimeoutError("its local socket is busy");
    poll(nullptr, 0, 1);
  }
}

net::FileDescriptor accept_locally(int listener) {
  net::FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool gone_again = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  if (!socket && !gone_again) throw_system_error("cannot accept a local connection");
  if (socket && process_at(socket.get()).uid != geteuid()) socket.reset();
  return socket;
}

std::vector<std::size_t> wait_for_any(int listener, const std::vector<net::FileDescriptor>& sockets,
                                      net::Deadline deadline) {
  std::vector<pollfd> entries;
  for (const auto& socket : sockets) entries.push_back({socket.get(), POLLIN, 0});
  entries.push_back({listener, POLLIN, 0});
  for (;;) {
    const auto left = net::left_until(deadline);
    const int count = poll(entries.data(), entries.size(), static_cast<int>(left.count()));
    if (count < 0 && errno != EINTR) throw_system_error("cannot wait for other ranks of this host");
    if (count <= 0 && left > net::Milliseconds(0)) continue;
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; count > 0 && i < entries.size(); ++i) {
      if (entries[i].revents != 0) ready.push_back(i);
    }
    return ready;
  }
}

PeerProcess process_at(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    throw_system_error("cannot see who is at the other end of a local socket");
  }
  return {credentials.pid, credentials.uid};
}

void send_greeting(int socket, const Greeting& greeting, int descriptor) {
  iovec payload{const_cast<Greeting*>(&greeting), sizeof(greeting)};
  Ancillary ancillary{};
  msghdr message = message_of(payload, ancillary);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  // The first packet on a connection: there is room for it.
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(greeting))) {
    throw_system_error("cannot hand shared memory to another rank");
  }
}

Received receive_greeting(int socket, net::Deadline deadline) {
  await(socket, POLLIN, deadline, "the greeting of another rank");
  Received received{};
  iovec payload{&received.greeting, sizeof(received.greeting)};
  Ancillary ancillary{};
  msghdr message = message_of(payload, ancillary);
  const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* part = CMSG_FIRSTHDR(&message);
  if (count > 0 && part != nullptr && part->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(part), sizeof(int));
    received.descriptor = net::FileDescriptor(descriptor);
  }
  if (count != static_cast<ssize_t>(sizeof(received.greeting)) || !received.descriptor) {
    throw CommunicationError("another rank closed its local socket, or sent no greeting");
  }
  return received;
}

}  // namespace lockstep::shm
