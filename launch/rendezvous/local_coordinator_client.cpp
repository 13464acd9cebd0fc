#include "rendezvous/local_coordinator_client.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "rendezvous/wall_clock.hpp"

namespace lockstep::launch {
namespace {

/// How long a connection that has proved the secret may take to say who it is.
constexpr std::chrono::seconds kJoinTime{10};

void watch_descriptor(int poll, int operation, int descriptor, unsigned events) {
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(poll, operation, descriptor, &event) != 0)
    throw Error(std::string("cannot watch a connection: ") + std::strerror(errno) + ".");
}

}  // namespace

LocalCoordinatorClient::LocalCoordinatorClient(CoordinatorOptions options,
                                               std::unique_ptr<net::Server> server, net::HostPort master)
    : poll_(epoll_create1(EPOLL_CLOEXEC)),
      server_(std::move(server)),
      master_(std::move(master)),
      coordinator_(std::move(options), *this, std::chrono::steady_clock::now()) {
  if (!poll_) throw Error(std::string("cannot open an epoll descriptor: ") + std::strerror(errno) + ".");
  watch_descriptor(poll_.get(), EPOLL_CTL_ADD, server_->events_descriptor(), EPOLLIN);
}

LocalCoordinatorClient::~LocalCoordinatorClient() = default;

void LocalCoordinatorClient::allow_torchrun(const std::string& run_id, int max_nodes) {
  python_ = std::make_unique<TorchrunServer>(run_id, max_nodes, *server_, coordinator_);
}

CoordinatorClient::Time LocalCoordinatorClient::deadline() const {
  if (!inbox_.empty()) return Time::min();
  Time next = coordinator_.deadline();
  for (const auto& peer : peers_) {
    if (!peer.known) next = std::min(next, peer.since + kJoinTime);
  }
  return next;
}

std::vector<Json> LocalCoordinatorClient::work(Time now) {
  net::ServerEvents events = server_->take_events();
  for (auto& arrival : events.peers) welcome(arrival, now);
  for (const auto& request : events.peer_uid_requests) ask_for_peer_uid(request);
  on_store_keys(events.changed_keys, now);
  for (auto& peer : peers_) listen(peer, now);
  part_from_closed(now);
  if (now >= coordinator_.deadline()) coordinator_.on_timer(now);
  for (auto& peer : peers_) watch(peer);
  return std::exchange(inbox_, {});
}

void LocalCoordinatorClient::send(const Json& message, Time now) {
  if (type_of(message) == "join") {
    coordinator_.on_join(0, read_node_info(message), now);
  } else {
    coordinator_.on_message(0, message, now);
  }
}

void LocalCoordinatorClient::welcome(net::AuthenticatedPeer& arrival, Time now) {
  const int descriptor = arrival.socket.get();
  server_->allow(arrival.address);
  peers_.push_back({next_id_++,
                    MessageConnection(std::move(arrival.socket), std::move(arrival.bytes_read_ahead)),
                    arrival.address, false, now});
  watch_descriptor(poll_.get(), EPOLL_CTL_ADD, descriptor, EPOLLIN);
}

void LocalCoordinatorClient::on_store_keys(const std::vector<std::string>& keys, Time now) {
  if (!python_) return;
  try {
    python_->hear(keys, now);
  } catch (const Error& error) {
    // A full store, a counter that is none: whoever did it harms the nodes that need the store, not this one.
    inbox_.push_back({{"type", "text"}, {"text", std::string("the job's store: ") + error.what()}});
  }
}

void LocalCoordinatorClient::listen(Peer& peer, Time now) {
  peer.channel.flush();
  for (const auto& message : peer.channel.receive()) hear(peer, message, now);
  if (!peer.known && now >= peer.since + kJoinTime) peer.channel.close("did not say who it is");
}

void LocalCoordinatorClient::hear(Peer& peer, const Json& message, Time now) {
  try {
    if (type_of(message) == "peer_uid") {
      server_->answer(message.value("id", std::uint64_t{0}), message.value("ok", false));
    } else if (!peer.known) {
      peer.known = true;
      NodeInfo info = read_node_info(message);
      info.clock_ahead = clock_ahead(message);
      coordinator_.on_join(peer.id, info, now);
    } else {
      coordinator_.on_message(peer.id, message, now);
    }
  } catch (const DataError& error) {
    peer.channel.close(std::string("sent something that is not understood: ") + error.what());
  } catch (const Json::exception& error) {
    peer.channel.close("sent something that is not understood");
  }
}

void LocalCoordinatorClient::part_from_closed(Time now) {
  // The coordinator may dismiss further ones meanwhile: those are closed by then, and their turn comes.
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (!peer->channel.closed()) {
      ++peer;
      continue;
    }
    const NodeId id = peer->id;
    const std::string how = peer->channel.why_closed();
    server_->forget(peer->address);
    peers_.erase(peer);
    coordinator_.on_disconnect(id, how, now);
    peer = peers_.begin();
  }
}

void LocalCoordinatorClient::watch(Peer& peer) {
  if (peer.channel.closed()) return;
  watch_descriptor(poll_.get(), EPOLL_CTL_MOD, peer.channel.descriptor(),
                   peer.channel.unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

LocalCoordinatorClient::Peer* LocalCoordinatorClient::find(NodeId node) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.id == node; });
  return found == peers_.end() ? nullptr : &*found;
}

void LocalCoordinatorClient::send(NodeId node, const Json& message) {
  if (node == 0) {
    inbox_.push_back(message);
  } else if (Peer* peer = find(node)) {
    peer->channel.send(message);
  } else {
    send_to_torchrun(node, message);
  }
}

void LocalCoordinatorClient::send_to_torchrun(NodeId node, const Json& message) {
  if (!python_) return;
  try {
    python_->tell(node, message);
  } catch (const Error& error) {
    inbox_.push_back({{"type", "text"}, {"text", std::string("the job's store: ") + error.what()}});
  }
}

void LocalCoordinatorClient::dismiss(NodeId node) {
  if (Peer* peer = find(node)) peer->channel.close("was dismissed");
}

void LocalCoordinatorClient::begin_round(int round) {
  if (round > 1) server_->clear("");
}

void LocalCoordinatorClient::ask_for_peer_uid(const net::PeerUidRequest& request) {
  const auto asked = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.known && !peer.channel.closed() && peer.address.same_host(request.peer);
  });
  if (asked == peers_.end()) return server_->answer(request.id, python_ != nullptr);
  asked->channel.send({{"type", "verify_peer_uid"},
                       {"id", request.id},
                       {"client", request.peer.text()},
                       {"server", request.local.text()}});
}

}  // namespace lockstep::launch
