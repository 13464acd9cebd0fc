#pragma once

#include <map>
#include <string>
#include <vector>

#include "net/store/server.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/local_coordinator_client.hpp"

namespace lockstep::launch {

/// torchrun's agents in a static rendezvous whose store this launcher hosts. They know no coordinator; they
/// read and write keys of the store (torch/distributed/elastic/agent/server/api.py, PyTorch 2.11):
///
/// - `<run id>/torchelastic/role_info/<i>`: node i has joined, with its role and number of ranks;
/// - `<run id>/torchelastic/assigned_ranks/<i>`: what is assigned to it: [first rank, world size, first role
/// rank, role world size];
/// - `<run id>/torchelastic/agent/terminal_state/num_members` and `/last_member`: the barrier at the end.
///
/// For the coordinator they are nodes that accept only their first start. When a round is stopped they count
/// as ended, and a failure on their side shows in the ranks that lose them.
class TorchrunServer final : public StoreNodes {
 public:
  using Time = Coordinator::Time;

  TorchrunServer(const std::string& run_id, int max_nodes, net::Server& server, Coordinator& coordinator);

  void on_keys(const std::vector<std::string>& keys, Time now) override;
  void send(NodeId node, const CoordinatorMessage& message) override;
  bool any() const override { return !nodes_.empty(); }
  bool may_come_from(const net::Address&) const override { return true; }
  std::string kept_keys() const override { return prefix_; }

 private:
  nlohmann::json read_role(int index) const;
  void join(int index, Time now);
  void count_ended(Time now);
  /// The job has succeeded: lets them exit.
  void pass_barrier();
  std::string barrier(const std::string& key) const;

  std::string run_id_;
  std::string prefix_;
  int max_nodes_;
  net::Server& server_;
  Coordinator& coordinator_;
  std::map<int, NodeId> nodes_;
  int round_ = 0;
  bool passed_ = false;
};

/// torchrun agents that connect to the endpoint of a c10d rendezvous. Their rendezvous uses keys without a
/// coordinator, so both sides would wait until their timeouts. Instead the coordinator is informed, and the
/// agent finds an invalid state in its key (`torch.rendezvous.<run id>`), which ends it.
class TorchrunRejecter final : public StoreNodes {
 public:
  TorchrunRejecter(net::Server& server, Coordinator& coordinator);

  void on_keys(const std::vector<std::string>& keys, Coordinator::Time now) override;

 private:
  net::Server& server_;
  Coordinator& coordinator_;
};

}  // namespace lockstep::launch
