#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "net/address.hpp"
#include "net/server.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/message_connection.hpp"
#include "torchrun_interop/torchrun_server.hpp"

namespace lockstep::launch {

/// The coordinator in this process, with the job's store and the connections of the other nodes' agents. The
/// agent of this node reaches it without a connection; its id is 0.
class LocalCoordinatorClient final : public CoordinatorClient, private CoordinatorActions {
 public:
  /// `master` is where the ranks of this node find the store that `server` serves.
  LocalCoordinatorClient(CoordinatorOptions options, std::unique_ptr<net::Server> server,
                         net::HostPort master);
  /// Python agents may take part, as in a static rendezvous of torchrun.
  void allow_torchrun(const std::string& run_id, int max_nodes);
  ~LocalCoordinatorClient() override;

  int descriptor() const override { return poll_.get(); }
  Time deadline() const override;
  std::vector<Json> work(Time now) override;
  void send(const Json& message, Time now) override;
  net::HostPort master() const override { return master_; }
  bool hosts_coordinator() const override { return true; }
  bool judges_standstills() const override { return true; }
  bool finished() const override { return coordinator_.finished(); }

 private:
  struct Peer {
    NodeId id = 0;
    MessageConnection channel;
    net::Address address;
    /// It has said who it is.
    bool known = false;
    Time since;
  };

  void send(NodeId node, const Json& message) override;
  void dismiss(NodeId node) override;
  void send_to_torchrun(NodeId node, const Json& message);
  void begin_round(int round) override;

  Peer* find(NodeId node);
  void welcome(net::AuthenticatedPeer& arrival, Time now);
  void ask_for_peer_uid(const net::PeerUidRequest& request);
  void on_store_keys(const std::vector<std::string>& keys, Time now);
  void listen(Peer& peer, Time now);
  void hear(Peer& peer, const Json& message, Time now);
  void part_from_closed(Time now);
  void watch(Peer& peer);

  net::FileDescriptor poll_;
  std::unique_ptr<net::Server> server_;
  net::HostPort master_;
  std::list<Peer> peers_;
  NodeId next_id_ = 1;
  /// What the coordinator said to this node and `work` has not given out yet.
  std::vector<Json> inbox_;
  Coordinator coordinator_;
  std::unique_ptr<TorchrunServer> python_;
};

}  // namespace lockstep::launch
