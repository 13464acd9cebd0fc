#include "rendezvous/coordinator_connection.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/socket_owner.hpp"
#include "process/time_text.hpp"
#include "rendezvous/wall_clock.hpp"

namespace lockstep::launch {
namespace {

/// "10.0.0.1:29400" as `Address::text` writes it.
net::Address read_address(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_string()) return {};
  const std::string text = *found;
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  const int port = std::atoi(text.c_str() + colon + 1);
  return net::Address::numeric(text.substr(0, colon), static_cast<std::uint16_t>(port))
      .value_or(net::Address());
}

}  // namespace

CoordinatorConnection::CoordinatorConnection(MessageConnection channel, const net::Address& coordinator,
                                             Times times, Time now)
    : channel_(std::move(channel)),
      coordinator_(coordinator),
      times_(times),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      last_heard_(now),
      next_ping_(now + times.keep_alive_interval) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (!poll_ || epoll_ctl(poll_.get(), EPOLL_CTL_ADD, channel_.descriptor(), &event) != 0)
    throw Error(std::string("cannot watch the connection to the coordinator: ") + std::strerror(errno) + ".");
}

CoordinatorClient::Time CoordinatorConnection::deadline() const {
  return over_ ? Time::max() : std::min(next_ping_, last_heard_ + times_.keep_alive_timeout);
}

std::vector<Json> CoordinatorConnection::work(Time now) {
  if (over_) return {};
  channel_.flush();
  std::vector<Json> messages = channel_.receive();
  if (!messages.empty()) last_heard_ = now;
  for (const auto& message : messages) {
    if (type_of(message) == "verify_peer_uid") verify_peer_uid(message);
    over_ = over_ || type_of(message) == "finish" || type_of(message) == "reject";
  }
  keep_alive(now);
  if (channel_.closed() && !over_) {
    over_ = true;
    messages.push_back({{"type", "lost"},
                        {"text", "the coordinator of the job, at " + coordinator_.text() + ", " +
                                     channel_.why_closed() + ": the job cannot go on without it"}});
  }
  watch();
  return messages;
}

void CoordinatorConnection::keep_alive(Time now) {
  if (over_) return;
  if (now >= last_heard_ + times_.keep_alive_timeout)
    channel_.close("gave no sign of life for " + seconds_text(times_.keep_alive_timeout) +
                   " (its launcher or the network is dead)");
  if (now < next_ping_) return;
  next_ping_ = now + times_.keep_alive_interval;
  channel_.send({{"type", "ping"}});
}

void CoordinatorConnection::verify_peer_uid(const Json& request) {
  const bool ours = net::verify_peer_uid(read_address(request, "client"), read_address(request, "server"));
  channel_.send({{"type", "peer_uid"}, {"id", request.value("id", Json())}, {"ok", ours}});
}

void CoordinatorConnection::watch() {
  epoll_event event{};
  event.events = channel_.unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN;
  const int operation = over_ ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_ctl(poll_.get(), operation, channel_.descriptor(), &event);
}

net::HostPort CoordinatorConnection::master() const {
  return {times_.master_host.empty() ? coordinator_.host() : times_.master_host, coordinator_.port()};
}

void CoordinatorConnection::send(const Json& message, Time) {
  Json stamped = message;
  if (type_of(message) == "join") stamp_with_wall_clock(stamped);
  channel_.send(stamped);
}

}  // namespace lockstep::launch
