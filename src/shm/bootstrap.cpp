#include "shm/bootstrap.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sstream>

#include "core/host_name.hpp"
#include "core/process_identity.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "net/sha256.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {
namespace {

constexpr int kMostThreads = 1 << 16;

std::string random_word() { return format_hex(net::random_bytes(16)); }

void read_lines(const std::string& text, std::initializer_list<std::string*> fields) {
  std::istringstream lines(text);
  for (auto* field : fields) std::getline(lines, *field);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

constexpr int kKind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;  // A greeting is one packet.
constexpr int kBacklog = 4096;  // Every higher rank connects before any connection is accepted.

struct LocalName {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit LocalName(const std::string& name) {
    address.sun_family = AF_UNIX;
    // A leading zero byte makes the name abstract.
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

/// Space for one descriptor sent with a packet.
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

std::string host_identity() {
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}/{}", this_process().boot, network.st_ino, geteuid());
}

PeerAddress PeerAddress::make(const std::string& host, int threads) {
  return {host.empty() ? host_identity() : host,
          lockstep::host_name(),
          "lockstep-" + random_word(),
          random_word(),
          {allowed_cpus(), threads},
          this_process().pid_namespace};
}

PeerAddress PeerAddress::read(const std::string& text) {
  PeerAddress address;
  std::string cpus, threads;
  read_lines(text, {&address.host, &address.host_name, &address.socket, &address.secret, &cpus, &threads,
                    &address.pid_namespace});
  address.processors.cpus = parse_cpu_list(cpus);
  address.processors.threads = std::clamp(std::atoi(threads.c_str()), 1, kMostThreads);
  return address;
}

std::string PeerAddress::text() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", host, host_name, socket, secret,
                     cpu_list_text(processors.cpus), processors.threads, pid_namespace);
}

ConnectReport ConnectReport::read(const std::string& text) {
  ConnectReport report;
  read_lines(text, {&report.reached, &report.trouble, &report.failure});
  return report;
}

std::string ConnectReport::text() const {
  return fmt::format("{}\n{}\n{}", reached, one_line(trouble), one_line(failure));
}

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
    // The backlog is full until the other rank accepts; net.core.somaxconn may limit it.
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
  // The first packet on a connection always fits.
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(greeting))) {
    throw_system_error("cannot hand shared memory to another rank");
  }
}

Received receive_greeting(int socket, net::Deadline deadline) {
  if (!net::await_ready(socket, POLLIN, deadline))
    throw TimeoutError("the greeting of another rank took too long");
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
