#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "coordination/channel.hpp"
#include "coordination/leader.hpp"
#include "coordination/leader_link.hpp"
#include "coordination/python_followers.hpp"
#include "net/address.hpp"
#include "net/server.hpp"

namespace lockstep::launch {

/// The leader in this process, with the job's store and the connections of the other nodes' agents. The agent
/// of this node reaches it without a connection; its id is 0.
class HostedLeader final : public LeaderLink, private LeaderOutbox {
 public:
  /// `master` is where the ranks of this node find the store that `server` serves.
  HostedLeader(LeaderOptions options, std::unique_ptr<net::Server> server, MasterAddress master);
  /// Python agents may take part, as in a static rendezvous of torchrun.
  void allow_python_followers(const std::string& run_id, int max_nodes);
  ~HostedLeader() override;

  int descriptor() const override { return poll_.get(); }
  Time deadline() const override;
  std::vector<Json> work(Time now) override;
  void send(const Json& message, Time now) override;
  MasterAddress master() const override { return master_; }
  bool hosts_leader() const override { return true; }
  bool judges_standstills() const override { return true; }
  bool finished() const override { return leader_.finished(); }

 private:
  struct Peer {
    NodeId id = 0;
    Channel channel;
    net::Address address;
    /// It has said who it is.
    bool known = false;
    Time since;
  };

  void send(NodeId node, const Json& message) override;
  void dismiss(NodeId node) override;
  void tell_follower(NodeId node, const Json& message);
  void begin_round(int round) override;

  Peer* find(NodeId node);
  void welcome(net::AuthenticatedPeer& arrival, Time now);
  void ask_for_voucher(const net::VouchRequest& request);
  void hear_followers(const std::vector<std::string>& keys, Time now);
  void listen(Peer& peer, Time now);
  void hear(Peer& peer, const Json& message, Time now);
  void part_from_closed(Time now);
  void watch(Peer& peer);

  net::FileDescriptor poll_;
  std::unique_ptr<net::Server> server_;
  MasterAddress master_;
  std::list<Peer> peers_;
  NodeId next_id_ = 1;
  /// What the leader said to this node and `work` has not given out yet.
  std::vector<Json> inbox_;
  Leader leader_;
  std::unique_ptr<PythonFollowers> python_;
};

}  // namespace lockstep::launch
