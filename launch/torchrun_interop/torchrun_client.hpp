#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/address.hpp"
#include "net/file_descriptor.hpp"
#include "net/store/client.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/coordinator_client.hpp"

namespace lockstep::launch {

/// A torchrun agent that hosts the store of a static rendezvous. This node takes part like another torchrun
/// agent, by the keys that torchrun_server.hpp describes. As there is no coordinator, this node coordinates
/// itself like a job of one node, except for the numbers of its ranks, which torchrun assigns, and the
/// barrier at the end. The failure of another node shows in the ranks that lose it.
///
/// A separate thread waits for keys. The destructor ends it within a second or two: it interrupts a call to a
/// store that does not answer.
class TorchrunClient final : public CoordinatorClient, private CoordinatorActions {
 public:
  struct Options {
    /// The options for all nodes; `join_timeout` is how long torchrun may take to assign ranks.
    CoordinatorOptions job;
    int node_rank = 0;
    /// The address as the user typed it, for the ranks.
    net::HostPort master;
  };

  TorchrunClient(Options options, const std::vector<net::Address>& store);
  ~TorchrunClient() override;

  int descriptor() const override { return event_.get(); }
  Time deadline() const override;
  std::vector<CoordinatorMessage> work(Time now) override;
  void send(const NodeMessage& message, Time now) override;
  net::HostPort master() const override { return options_.master; }
  bool finished() const override { return true; }

 private:
  void send(NodeId node, const CoordinatorMessage& message) override;
  void dismiss(NodeId) override {}
  void begin_round(int) override {}

  // Called by the thread; end with an exception when the object is destroyed.
  void run(const std::vector<net::Address>& store);
  net::StoreClient connect(const std::vector<net::Address>& store);
  void take_place(net::StoreClient& client);
  /// Waits until the ranks have succeeded, and checks the store regularly.
  void await_success(net::StoreClient& client);
  void pass_barrier(net::StoreClient& client);
  /// False at the deadline.
  bool await_key(net::StoreClient& client, const std::string& key, Time deadline);
  void throw_if_stopped();
  void deliver(CoordinatorMessage message);

  const Options options_;
  const std::string prefix_;
  /// Readable when the thread has delivered something.
  net::FileDescriptor event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex:
  std::optional<NodeInfo> node_;
  std::vector<CoordinatorMessage> delivered_;
  bool succeeded_ = false;
  bool stop_ = false;
  /// The thread's connection to the store, which the destructor shuts down.
  net::FileDescriptor connection_;
  // Used by the agent's thread:
  /// The ranks that torchrun has assigned, and the coordinator that starts them; nullopt: not assigned yet.
  Assignment assignment_;
  std::optional<Coordinator> coordinator_;
  std::vector<CoordinatorMessage> inbox_;
  std::thread thread_;
};

}  // namespace lockstep::launch
