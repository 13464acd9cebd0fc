#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/address.hpp"
#include "net/store/server.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/message_connection.hpp"

namespace lockstep::launch {

/// Nodes that take part through keys of the job's store, without a launcher's connection: torchrun agents.
class StoreNodes {
 public:
  virtual ~StoreNodes() = default;
  /// Keys of the store have changed. Throws lockstep::Error if the store has unexpected contents.
  virtual void on_keys(const std::vector<std::string>& keys, Coordinator::Time now) = 0;
  /// A message of the coordinator to one of them. Throws as on_keys does.
  virtual void send(NodeId /*node*/, const CoordinatorMessage& /*message*/) {}
  /// Whether any take part.
  virtual bool any() const { return false; }
  /// Whether a host without a launcher of this job may be one of them, so that its clients are served.
  virtual bool may_come_from(const net::Address& /*host*/) const { return false; }
  /// What their keys begin with, which outlive a round; "" if they have none.
  virtual std::string kept_keys() const { return ""; }
};

/// The coordinator in this process, with the job's store and the connections to the other nodes' agents. The
/// agent of this node reaches it by function calls; its id is 0.
class LocalCoordinatorClient final : public CoordinatorClient, private CoordinatorActions {
 public:
  /// `master` is the address of `server`'s store for the ranks of this node. `secret_name` describes the
  /// secret that launchers must prove, for messages.
  LocalCoordinatorClient(CoordinatorOptions options, std::unique_ptr<net::Server> server,
                         net::HostPort master, std::string secret_name = "");

  using MakeStoreNodes = std::function<std::unique_ptr<StoreNodes>(net::Server&, Coordinator&)>;
  /// Accepts such nodes, or refuses them; `make` may return null.
  void allow(const MakeStoreNodes& make);

  int descriptor() const override { return poll_.get(); }
  Time deadline() const override;
  std::vector<CoordinatorMessage> work(Time now) override;
  void send(const NodeMessage& message, Time now) override;
  net::HostPort master() const override { return master_; }
  bool finished() const override;

 private:
  struct Peer {
    MessageConnection connection;
    net::Address address;
    /// It has sent its NodeInfo.
    bool joined = false;
    Time since;
  };

  void send(NodeId node, const CoordinatorMessage& message) override;
  void dismiss(NodeId node) override;
  void begin_round(int round) override;
  void watch(const std::string& prefix) override;
  void write(const std::string& key, const std::string& value) override;

  Peer* find(NodeId node);
  void accept(net::AuthenticatedPeer& arrival, Time now);
  void on_refused_client(const net::RefusedClient& client);
  void verify_peer_uid(const net::PeerUidRequest& request);
  void receive_ready(Time now);
  void receive(NodeId id, Peer& peer, Time now);
  void on_message(NodeId id, Peer& peer, const NodeMessage& message, Time now);
  void close_late_newcomers(Time now);
  void note_if_closed(NodeId id, const Peer& peer);
  void remove_closed(Time now);
  /// Passes the ranks' reports to the coordinator, and takes them out of `keys`.
  void receive_reports(std::vector<std::string>& keys, Time now);
  void tell_of_shortage();
  void guard_store(const std::function<void()>& action);
  void watch_store_clients(Time now);

  net::FileDescriptor poll_;
  std::unique_ptr<net::Server> server_;
  net::HostPort master_;
  std::string secret_name_;
  std::map<NodeId, Peer> peers_;
  NodeId next_id_ = 1;
  /// Peers that have not joined yet, the oldest first.
  std::set<NodeId> newcomers_;
  /// Peers whose connection is closed, and of which the coordinator does not know that yet.
  std::set<NodeId> closed_;
  /// Messages of the coordinator to this node that `work` has not returned yet.
  std::vector<CoordinatorMessage> inbox_;
  bool has_told_of_shortage_ = false;
  Coordinator coordinator_;
  std::unique_ptr<StoreNodes> store_nodes_;
  /// After the end of the job: how long clients of torchrun agents may still use the store. When to check
  /// them next.
  std::optional<Time> store_deadline_;
  std::optional<Time> next_store_look_;
  bool store_done_ = false;
  /// The keys of the ranks' reports to the coordinator; empty: none are expected.
  std::string reports_;
};

}  // namespace lockstep::launch
