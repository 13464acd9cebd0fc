#include "rendezvous/local_coordinator_client.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
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
/// The key of the server's events among those of the poll; peers have their ids, from 1 on.
constexpr std::uint64_t kServerKey = 0;

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
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kServerKey}};
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, server_->events_descriptor(), &event) != 0)
    throw Error(std::string("cannot watch the job's store: ") + std::strerror(errno) + ".");
}

void LocalCoordinatorClient::allow(const MakeStoreNodes& make) {
  store_nodes_ = make(*server_, coordinator_);
}

CoordinatorClient::Time LocalCoordinatorClient::deadline() const {
  // It may have begun to wait for torchrun since `work` looked last.
  const bool urgent = !inbox_.empty() || !closed_.empty();
  if (urgent || (coordinator_.waits_for_torchrun() && !next_store_look_)) return Time::min();
  Time next = std::min(coordinator_.deadline(), next_store_look_.value_or(Time::max()));
  if (!newcomers_.empty()) next = std::min(next, peers_.at(*newcomers_.begin()).since + kJoinTime);
  return next;
}

std::vector<CoordinatorMessage> LocalCoordinatorClient::work(Time now) {
  net::ServerEvents events = server_->take_events();
  for (auto& arrival : events.peers) accept(arrival, now);
  for (const auto& client : events.refused_clients) on_refused_client(client);
  for (const auto& request : events.peer_uid_requests) verify_peer_uid(request);
  if (events.lacks_descriptors) tell_of_shortage();
  receive_reports(events.changed_keys, now);
  if (store_nodes_) guard_store([&] { store_nodes_->on_keys(events.changed_keys, now); });
  receive_ready(now);
  close_late_newcomers(now);
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
  const NodeId id = next_id_++;
  auto& peer = peers_
                   .try_emplace(id, Peer{MessageConnection(std::move(arrival.socket), poll_.get(),
                                                           std::move(arrival.bytes_read_ahead),
                                                           static_cast<std::uint64_t>(id)),
                                         arrival.address, false, now})
                   .first->second;
  newcomers_.insert(id);
  receive(id, peer, now);
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

void LocalCoordinatorClient::tell_of_shortage() {
  if (std::exchange(has_told_of_shortage_, true)) return;
  inbox_.push_back(Notice{
      "the job's store closed a connection, since this launcher may open no more files: raise its limit "
      "(ulimit -n)"});
}

void LocalCoordinatorClient::guard_store(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    // A full store, a counter that is not a number: this harms the nodes that need the store, not this one.
    inbox_.push_back(Notice{std::string("the job's store: ") + error.what()});
  }
}

/// Only the peers that have sent something: with thousands of nodes, some message arrives all the time.
void LocalCoordinatorClient::receive_ready(Time now) {
  std::array<epoll_event, 256> ready;
  const int count = epoll_wait(poll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const auto id = static_cast<NodeId>(ready[i].data.u64);
    if (Peer* peer = find(id)) receive(id, *peer, now);
  }
}

void LocalCoordinatorClient::receive(NodeId id, Peer& peer, Time now) {
  for (const auto& message : peer.connection.receive<NodeMessage>()) on_message(id, peer, message, now);
  note_if_closed(id, peer);
}

void LocalCoordinatorClient::close_late_newcomers(Time now) {
  for (const NodeId id : newcomers_) {
    Peer& peer = peers_.at(id);
    if (now < peer.since + kJoinTime) return;
    peer.connection.close("did not identify itself");
    note_if_closed(id, peer);
  }
}

void LocalCoordinatorClient::note_if_closed(NodeId id, const Peer& peer) {
  if (peer.connection.closed()) closed_.insert(id);
}

void LocalCoordinatorClient::on_message(NodeId id, Peer& peer, const NodeMessage& message, Time now) {
  if (const auto* answer = std::get_if<PeerUidAnswer>(&message)) {
    server_->answer(answer->id, answer->ok);
  } else if (peer.joined) {
    coordinator_.on_message(id, message, now);
  } else if (const auto* node = std::get_if<NodeInfo>(&message)) {
    peer.joined = true;
    newcomers_.erase(id);
    coordinator_.on_join(id, *node, now);
  } else {
    peer.connection.close("did not identify itself");
  }
}

void LocalCoordinatorClient::remove_closed(Time now) {
  // The coordinator may dismiss more peers meanwhile.
  while (!closed_.empty()) {
    const NodeId id = *closed_.begin();
    // What it sent before it left.
    receive(id, peers_.at(id), now);
    closed_.erase(id);
    const auto peer = peers_.extract(id);
    newcomers_.erase(id);
    server_->forget(peer.mapped().address);
    coordinator_.on_disconnect(id, peer.mapped().connection.why_closed(), now);
  }
}

LocalCoordinatorClient::Peer* LocalCoordinatorClient::find(NodeId node) {
  const auto found = peers_.find(node);
  return found == peers_.end() ? nullptr : &found->second;
}

void LocalCoordinatorClient::send(NodeId node, const CoordinatorMessage& message) {
  if (node == 0) {
    inbox_.push_back(message);
  } else if (Peer* peer = find(node)) {
    peer->connection.send(message);
    note_if_closed(node, *peer);
  } else if (store_nodes_) {
    guard_store([&] { store_nodes_->send(node, message); });
  }
}

void LocalCoordinatorClient::dismiss(NodeId node) {
  Peer* peer = find(node);
  if (peer == nullptr) return;
  peer->connection.close("was dismissed");
  note_if_closed(node, *peer);
}

void LocalCoordinatorClient::begin_round(int round) {
  if (round == 1) return;
  // All keys begin with "", and none with this.
  const std::string kept = store_nodes_ ? store_nodes_->kept_keys() : "";
  server_->clear(kept.empty() ? std::string(1, '\0') : kept);
}

void LocalCoordinatorClient::watch(const std::string& prefix) {
  reports_ = prefix;
  server_->watch(prefix);
}

void LocalCoordinatorClient::write(const std::string& key, const std::string& value) {
  guard_store([&] { server_->set(key, value); });
}

void LocalCoordinatorClient::receive_reports(std::vector<std::string>& keys, Time now) {
  if (reports_.empty()) return;
  for (const auto& key : keys) {
    if (!key.starts_with(reports_)) continue;
    if (const auto text = server_->get(key)) coordinator_.on_rank_report(*text, now);
  }
  std::erase_if(keys, [&](const std::string& key) { return key.starts_with(reports_); });
}

void LocalCoordinatorClient::verify_peer_uid(const net::PeerUidRequest& request) {
  const auto asked = std::ranges::find_if(peers_, [&](const auto& each) {
    const Peer& peer = each.second;
    return peer.joined && !peer.connection.closed() && peer.address.same_host(request.peer);
  });
  if (asked == peers_.end())
    return server_->answer(request.id, store_nodes_ && store_nodes_->may_come_from(request.peer));
  asked->second.connection.send(VerifyPeerUid{request.id, request.peer, request.local});
  note_if_closed(asked->first, asked->second);
}

}  // namespace lockstep::launch
