#include "net/socket.hpp"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "net/socket_owner.hpp"

namespace lockstep::net {
namespace {

constexpr int kBacklog = 4096;

FileDescriptor new_socket(int family) {
  return FileDescriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Sets an option; errors are ignored, because each is optional.
void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

/// Disables Nagle's algorithm, and detects lost hosts: probes after 10 s of silence, gives up after 30 s.
void set_stream_options(int socket) {
  constexpr int kSilenceSeconds = 10, kPauseSeconds = 5, kAttempts = 4, kUnansweredMilliseconds = 30'000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilenceSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kPauseSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kAttempts);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
}

[[noreturn]] void fail_to_listen(const Address& address, int reason) {
  const std::string text = fmt::format("cannot listen at {}: {}.", address.text(), std::strerror(reason));
  if (reason == EADDRINUSE) {
    const std::string holder = port_holder(address.port());
    throw AddressInUse(fmt::format("{} The port is held by {}. Choose another port, or end that program.",
                                   text, holder.empty() ? "a program that has just ended" : holder));
  }
  throw CommunicationError(reason == EADDRNOTAVAIL ? text + " That is not an address of this host." : text);
}

/// A listening socket, or none, with errno set.
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
  throw CommunicationError(fmt::format("{} failed: {}.", what, std::strerror(errno)));
}

void await(int socket, short events, Deadline deadline, const char* what) {
  if (await_ready(socket, events, deadline)) return;
  throw TimeoutError(fmt::format("{}: timed out, no answer in time.", what));
}

/// Repeated attempts to connect to one address.
class Attempt {
 public:
  explicit Attempt(const Address& address) : address_(address) {}

  /// Starts an attempt if none is in progress and the pause after the last one is over. True: connected at
  /// once.
  bool begin(Clock::time_point now) {
    if (socket_ || now < not_before_) return false;
    socket_ = new_socket(address_.family());
    if (!socket_) return fail(errno, now);
    set_stream_options(socket_.get());
    if (connect(socket_.get(), address_.data(), address_.size()) == 0) return finish_connecting(now);
    return errno == EINPROGRESS ? false : fail(errno, now);
  }

  /// Call it when the poll reports an event. True: connected.
  bool finish_connecting(Clock::time_point now) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    // A local ephemeral port may connect to itself; then no listener could ever bind it.
    if (error == 0 && local_address(socket_.get()) == remote_address(socket_.get())) error = ECONNREFUSED;
    return error == 0 || fail(error, now);
  }

  int descriptor() const { return socket_.get(); }
  FileDescriptor take() { return std::move(socket_); }
  Clock::time_point not_before() const { return not_before_; }

  std::string outcome() const {
    const int error = socket_ || last_error_ == 0 ? ETIMEDOUT : last_error_;
    const char* what = error == ETIMEDOUT      ? "no answer; a firewall may be in between"
                       : error == ECONNREFUSED ? "refused; nothing listens there"
                                               : std::strerror(error);
    return fmt::format("{}: {}", address_.text(), what);
  }

 private:
  bool fail(int error, Clock::time_point now) {
    constexpr Milliseconds kFirstPause{5}, kLongestPause{200};
    socket_.reset();
    last_error_ = error;
    pause_ = pause_ == Milliseconds(0) ? kFirstPause : std::min(2 * pause_, kLongestPause);
    not_before_ = now + pause_;
    return false;
  }

  Address address_;
  FileDescriptor socket_;
  int last_error_ = 0;
  Milliseconds pause_{0};
  Clock::time_point not_before_{};
};

/// Waits until an attempt succeeds or fails, or the first pause is over. Returns the connected attempt, if
/// any.
Attempt* await_any(std::vector<Attempt>& attempts, Deadline deadline) {
  std::vector<pollfd> entries;
  for (const auto& attempt : attempts) {
    entries.push_back({attempt.descriptor(), POLLOUT, 0});
    if (attempt.descriptor() < 0) deadline = std::min(deadline, attempt.not_before());
  }
  poll(entries.data(), entries.size(), static_cast<int>(left_until(deadline).count()));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents != 0 && attempts[i].finish_connecting(Clock::now())) return &attempts[i];
  }
  return nullptr;
}

}  // namespace

FileDescriptor listen_at(const Address& address) {
  FileDescriptor socket = try_to_listen(address);
  if (!socket) fail_to_listen(address, errno);
  return socket;
}

FileDescriptor listen_on_loopback(std::uint16_t port) { return listen_at(Address::loopback(port)); }

FileDescriptor listen_everywhere(std::uint16_t port) {
  const Address everywhere = Address::numeric("::", port).value();
  FileDescriptor socket = try_to_listen(everywhere);
  if (socket) return socket;
  if (errno == EADDRINUSE) fail_to_listen(everywhere, errno);
  return listen_at(Address::numeric("0.0.0.0", port).value());
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

FileDescriptor connect_to(const std::vector<Address>& addresses, Deadline deadline) {
  if (addresses.empty()) throw UsageError("cannot connect: no address was given.");
  std::vector<Attempt> attempts(addresses.begin(), addresses.end());
  do {
    for (auto& attempt : attempts) {
      if (attempt.begin(Clock::now())) return attempt.take();
    }
    if (Attempt* winner = await_any(attempts, deadline)) return winner->take();
  } while (Clock::now() < deadline);
  std::string outcomes;
  for (const auto& attempt : attempts) {
    outcomes += fmt::format("{}{}", outcomes.empty() ? "" : "; ", attempt.outcome());
  }
  throw TimeoutError(fmt::format("cannot connect to {}.", outcomes));
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
  // Connecting a datagram socket selects the route and sends nothing.
  const FileDescriptor probe(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool known = probe && ::connect(probe.get(), target.data(), target.size()) == 0;
  return known ? local_address(probe.get()).with_port(0) : Address();
}

}  // namespace lockstep::net
