#include "rendezvous/local_coordinator_client.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// Time from proving the secret to joining.
constexpr std::chrono::seconds kJoinTime{10};
/// Time for torchrun agents to close their connections to the store.
constexpr std::chrono::seconds kStoreTime{2};
constexpr std::chrono::milliseconds kStoreLook{20};

}  // namespace

LocalCoordinatorClient::LocalCoordinatorClient(CoordinatorOptions options,
                                               std::unique_ptr<net::Server> server, net::HostPort master,
                                               std::string secret_name)
    : poll_(epoll_create1(EPOLL_CLOEXEC)),
      server_(std::move(server)),
      master_(std::move(master)),
      secret_name_(std::move(secret_name)),
      coordinator_(std::move(options), *this, net::Clock::now()) {
  if (!poll_) throw Error(std::string("cannot open an epoll descriptor: ") + std::strerror(errno) + ".");
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, server_->events_descriptor(), &event) != 0)
    throw Error(std::string("cannot watch the job's store: ") + std::strerror(errno) + ".");
}

void LocalCoordinatorClient::allow(const MakeStoreNodes& make) {
  store_nodes_ = make(*server_, coordinator_);
}

CoordinatorClient::Time LocalCoordinatorClient::deadline() const {
  // It may have begun to wait for torchrun since `work` looked last.
  if (!inbox_.empty() || (coordinator_.waits_for_torchrun() && !next_store_look_)) return Time::min();
  Time next = std::min(coordinator_.deadline(), next_store_look_.value_or(Time::max()));
  for (const auto& peer : peers_) {
    if (!peer.joined) next = std::min(next, peer.since + kJoinTime);
  }
  return next;
}

std::vector<CoordinatorMessage> LocalCoordinatorClient::work(Time now) {
  net::ServerEvents events = server_->take_events();
  for (auto& arrival : events.peers) accept(arrival, now);
  for (const auto& client : events.refused_clients) on_refused_client(client);
  for (const auto& request : events.peer_uid_requests) verify_peer_uid(request);
  if (store_nodes_) guard_store([&] { store_nodes_->on_keys(events.changed_keys, now); });
  for (auto& peer : peers_) receive(peer, now);
  remove_closed(now);
  if (now >= coordinator_.deadline()) coordinator_.on_timer(now);
  watch_store_clients(now);
  return std::exchange(inbox_, {});
}

void LocalCoordinatorClient::send(const NodeMessage& message, Time now) {
  if (const auto* node = std::get_if<NodeInfo>(&message)) {
    coordinator_.on_join(0, *node, now);
  } else {
    coordinator_.on_message(0, message, now);
  }
}

bool LocalCoordinatorClient::finished() const { return coordinator_.finished() && store_done_; }

/// torchrun agents keep a connection to the store until they end, and read it once more after the end of the
/// job. If it is gone then, they end with a stack trace.
void LocalCoordinatorClient::watch_store_clients(Time now) {
  const bool needed = store_nodes_ && store_nodes_->any() && server_->counts().open > 0;
  next_store_look_.reset();
  if (coordinator_.waits_for_torchrun() && !needed) coordinator_.on_torchrun_lost(now);
  if (coordinator_.finished() && !store_done_) {
    if (!store_deadline_) store_deadline_ = now + kStoreTime;
    store_done_ = !needed || now >= *store_deadline_;
  }
  const bool looks = coordinator_.waits_for_torchrun() || (coordinator_.finished() && !store_done_);
  if (looks) next_store_look_ = now + kStoreLook;
}

void LocalCoordinatorClient::accept(net::AuthenticatedPeer& arrival, Time now) {
  server_->allow(arrival.address);
  peers_.push_back(
      {next_id_++,
       MessageConnection(std::move(arrival.socket), poll_.get(), std::move(arrival.bytes_read_ahead)),
       arrival.address, false, now});
}

void LocalCoordinatorClient::on_refused_client(const net::RefusedClient& client) {
  if (client.proved_wrong_secret) {
    coordinator_.on_refused("a launcher from " + client.address.host(),
                            "it has a different secret; " + secret_name_);
  } else if (store_nodes_ && !store_nodes_->may_come_from(client.address)) {
    coordinator_.on_refused(
        "a client from " + client.address.host(),
        "it did not prove the job's secret. If it is torchrun, its c10d rendezvous is not compatible with "
        "Lockstep's: start 'lockstep run' there, or use --rdzv-backend static on all nodes");
  }
}

void LocalCoordinatorClient::guard_store(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    // A full store, a counter that is not a number: this harms the nodes that need the store, not this one.
    inbox_.push_back(Notice{std::string("the job's store: ") + error.what()});
  }
}

void LocalCoordinatorClient::receive(Peer& peer, Time now) {
  for (const auto& message : peer.connection.receive<NodeMessage>()) on_message(peer, message, now);
  if (!peer.joined && now >= peer.since + kJoinTime) peer.connection.close("did not identify itself");
}

void LocalCoordinatorClient::on_message(Peer& peer, const NodeMessage& message, Time now) {
  if (const auto* answer = std::get_if<PeerUidAnswer>(&message)) {
    server_->answer(answer->id, answer->ok);
  } else if (peer.joined) {
    coordinator_.on_message(peer.id, message, now);
  } else if (const auto* node = std::get_if<NodeInfo>(&message)) {
    peer.joined = true;
    coordinator_.on_join(peer.id, *node, now);
  } else {
    peer.connection.close("did not identify itself");
  }
}

void LocalCoordinatorClient::remove_closed(Time now) {
  // The coordinator may dismiss more peers meanwhile; they are closed then, so the loop finds them.
  const auto closed = [](const Peer& peer) { return peer.connection.closed(); };
  for (auto peer = peers_.begin(); (peer = std::ranges::find_if(peers_, closed)) != peers_.end();) {
    const NodeId id = peer->id;
    const std::string how = peer->connection.why_closed();
    server_->forget(peer->address);
    peers_.erase(peer);
    coordinator_.on_disconnect(id, how, now);
  }
}

LocalCoordinatorClient::Peer* LocalCoordinatorClient::find(NodeId node) {
  const auto found = std::ranges::find(peers_, node, &Peer::id);
  return found == peers_.end() ? nullptr : &*found;
}

void LocalCoordinatorClient::send(NodeId node, const CoordinatorMessage& message) {
  if (node == 0) {
    inbox_.push_back(message);
  } else if (Peer* peer = find(node)) {
    peer->connection.send(message);
  } else if (store_nodes_) {
    guard_store([&] { store_nodes_->send(node, message); });
  }
}

void LocalCoordinatorClient::dismiss(NodeId node) {
  if (Peer* peer = find(node)) peer->connection.close("was dismissed");
}

void LocalCoordinatorClient::begin_round(int round) {
  if (round > 1) server_->clear("");
}

void LocalCoordinatorClient::verify_peer_uid(const net::PeerUidRequest& request) {
  const auto asked = std::ranges::find_if(peers_, [&](const Peer& peer) {
    return peer.joined && !peer.connection.closed() && peer.address.same_host(request.peer);
  });
  if (asked == peers_.end())
    return server_->answer(request.id, store_nodes_ && store_nodes_->may_come_from(request.peer));
  asked->connection.send(VerifyPeerUid{request.id, request.peer, request.local});
}

}  // namespace lockstep::launch
