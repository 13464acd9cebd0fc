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

/// A torchrun agent that hosts the store of a static rendezvous, in which this node takes part as another
/// torchrun would: through the keys that torchrun_server.hpp describes. There is nobody to talk to: this node
/// is coordinated like a job of its own, but for the numbers of its ranks, which are torchrun's, and the
/// barrier at the end. The failure of another node shows in the ranks that lose it.
///
/// A thread of its own waits for keys. It ends with the object, within a second or two: a call that waits for
/// a store which does not answer is broken off.
class TorchrunClient final : public CoordinatorClient, private CoordinatorActions {
 public:
  struct Options {
    /// Of all nodes; `join_timeout` is how long torchrun may take to assign ranks.
    CoordinatorOptions job;
    int node_rank = 0;
    /// As the user has written it: what the ranks get.
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

  // The thread's part, which ends by an exception when the object goes.
  void run(const std::vector<net::Address>& store);
  net::StoreClient connect(const std::vector<net::Address>& store);
  void take_place(net::StoreClient& client);
  /// Waits until the ranks have succeeded, and looks at the store now and then.
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
  // Under the mutex:
  std::optional<NodeInfo> node_;
  std::vector<CoordinatorMessage> delivered_;
  bool succeeded_ = false;
  bool stop_ = false;
  /// The thread's connection to the store, which the object breaks off when it goes.
  net::FileDescriptor connection_;
  // The agent's own:
  /// What torchrun has assigned, and who has started the ranks since; nobody: it has assigned nothing yet.
  Assignment place_;
  std::optional<Coordinator> coordinator_;
  std::vector<CoordinatorMessage> inbox_;
  std::thread thread_;
};

}  // namespace lockstep::launch
