#include "coordination/hosted_leader.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "coordination/wall_clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// How long a connection that has proved the secret may take to say who it is.
constexpr std::chrono::seconds kHelloTime{10};

void watch_descriptor(int poll, int operation, int descriptor, unsigned events) {
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(poll, operation, descriptor, &event) != 0)
    throw Error(std::string("cannot watch a connection: ") + std::strerror(errno) + ".");
}

}  // namespace

HostedLeader::HostedLeader(LeaderOptions options, std::unique_ptr<net::Server> server, MasterAddress master)
    : poll_(epoll_create1(EPOLL_CLOEXEC)),
      server_(std::move(server)),
      master_(std::move(master)),
      leader_(std::move(options), *this, std::chrono::steady_clock::now()) {
  if (!poll_) throw Error(std::string("cannot open an epoll descriptor: ") + std::strerror(errno) + ".");
  watch_descriptor(poll_.get(), EPOLL_CTL_ADD, server_->events_descriptor(), EPOLLIN);
}

HostedLeader::~HostedLeader() = default;

void HostedLeader::allow_python_followers(const std::string& run_id, int max_nodes) {
  python_ = std::make_unique<PythonFollowers>(run_id, max_nodes, *server_, leader_);
}

LeaderLink::Time HostedLeader::deadline() const {
  if (!inbox_.empty()) return Time::min();
  Time next = leader_.deadline();
  for (const auto& peer : peers_) {
    if (!peer.known) next = std::min(next, peer.since + kHelloTime);
  }
  return next;
}

std::vector<Json> HostedLeader::work(Time now) {
  net::ServerEvents events = server_->take_events();
  for (auto& arrival : events.peers) welcome(arrival, now);
  for (const auto& request : events.vouch_requests) ask_for_voucher(request);
  hear_followers(events.changed_keys, now);
  for (auto& peer : peers_) listen(peer, now);
  part_from_closed(now);
  if (now >= leader_.deadline()) leader_.tick(now);
  for (auto& peer : peers_) watch(peer);
  return std::exchange(inbox_, {});
}

void HostedLeader::send(const Json& message, Time now) {
  if (type_of(message) == "hello") {
    leader_.join(0, read_node_info(message), now);
  } else {
    leader_.hear(0, message, now);
  }
}

void HostedLeader::welcome(net::AuthenticatedPeer& arrival, Time now) {
  const int descriptor = arrival.socket.get();
  server_->admit(arrival.address);
  peers_.push_back({next_id_++, Channel(std::move(arrival.socket), std::move(arrival.bytes_read_ahead)),
                    arrival.address, false, now});
  watch_descriptor(poll_.get(), EPOLL_CTL_ADD, descriptor, EPOLLIN);
}

void HostedLeader::hear_followers(const std::vector<std::string>& keys, Time now) {
  if (!python_) return;
  try {
    python_->hear(keys, now);
  } catch (const Error& error) {
    // A full store, a counter that is none: whoever did it harms the nodes that need the store, not this one.
    inbox_.push_back({{"type", "text"}, {"text", std::string("the job's store: ") + error.what()}});
  }
}

void HostedLeader::listen(Peer& peer, Time now) {
  peer.channel.flush();
  for (const auto& message : peer.channel.receive()) hear(peer, message, now);
  if (!peer.known && now >= peer.since + kHelloTime) peer.channel.close("did not say who it is");
}

void HostedLeader::hear(Peer& peer, const Json& message, Time now) {
  try {
    if (type_of(message) == "vouched") {
      server_->answer(message.value("id", std::uint64_t{0}), message.value("ok", false));
    } else if (!peer.known) {
      peer.known = true;
      NodeInfo info = read_node_info(message);
      info.clock_ahead = clock_ahead(message);
      leader_.join(peer.id, info, now);
    } else {
      leader_.hear(peer.id, message, now);
    }
  } catch (const DataError& error) {
    peer.channel.close(std::string("sent something that is not understood: ") + error.what());
  } catch (const Json::exception& error) {
    peer.channel.close("sent something that is not understood");
  }
}

void HostedLeader::part_from_closed(Time now) {
  // The leader may dismiss further ones meanwhile: those are closed by then, and their turn comes.
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (!peer->channel.closed()) {
      ++peer;
      continue;
    }
    const NodeId id = peer->id;
    const std::string how = peer->channel.why_closed();
    server_->forget(peer->address);
    peers_.erase(peer);
    leader_.lose(id, how, now);
    peer = peers_.begin();
  }
}

void HostedLeader::watch(Peer& peer) {
  if (peer.channel.closed()) return;
  watch_descriptor(poll_.get(), EPOLL_CTL_MOD, peer.channel.descriptor(),
                   peer.channel.unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

HostedLeader::Peer* HostedLeader::find(NodeId node) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.id == node; });
  return found == peers_.end() ? nullptr : &*found;
}

void HostedLeader::send(NodeId node, const Json& message) {
  if (node == 0) {
    inbox_.push_back(message);
  } else if (Peer* peer = find(node)) {
    peer->channel.send(message);
  } else {
    tell_follower(node, message);
  }
}

void HostedLeader::tell_follower(NodeId node, const Json& message) {
  if (!python_) return;
  try {
    python_->tell(node, message);
  } catch (const Error& error) {
    inbox_.push_back({{"type", "text"}, {"text", std::string("the job's store: ") + error.what()}});
  }
}

void HostedLeader::dismiss(NodeId node) {
  if (Peer* peer = find(node)) peer->channel.close("was dismissed");
}

void HostedLeader::begin_round(int round) {
  if (round > 1) server_->clear("");
}

void HostedLeader::ask_for_voucher(const net::VouchRequest& request) {
  const auto asked = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.known && !peer.channel.closed() && peer.address.same_host(request.peer);
  });
  if (asked == peers_.end()) return server_->answer(request.id, python_ != nullptr);
  asked->channel.send({{"type", "vouch"},
                       {"id", request.id},
                       {"client", request.peer.text()},
                       {"server", request.local.text()}});
}

}  // namespace lockstep::launch
