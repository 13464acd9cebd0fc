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
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/restart_policy.hpp"

namespace lockstep::launch {

/// A torchrun agent that hosts the store of a static rendezvous, in which this node takes part as another
/// torchrun would: through the keys that torchrun_server.hpp describes. There is nobody to talk to: restarts
/// are this node's own, decided here, and the failure of another node shows in the ranks that lose it.
///
/// A thread of its own waits for keys. It ends with the object, within a second or two: a call that waits for
/// a store which does not answer is broken off.
class TorchrunClient final : public CoordinatorClient {
 public:
  struct Options {
    std::string run_id;
    int node_rank = 0;
    int max_nodes = 1;
    int max_restarts = 0;
    /// The first pause before a restart; see RestartPolicy.
    std::chrono::milliseconds restart_backoff{0};
    /// When a hang of this node's ranks ends the job; 0: never.
    std::chrono::milliseconds heartbeat_timeout{0};
    std::chrono::milliseconds timeout = std::chrono::minutes(15);
    std::chrono::milliseconds exit_barrier_timeout = std::chrono::minutes(5);
    /// As the user has written it: what the ranks get.
    net::HostPort master;
  };

  TorchrunClient(Options options, const std::vector<net::Address>& store);
  ~TorchrunClient() override;

  int descriptor() const override { return event_.get(); }
  Time deadline() const override { return pause_end_.value_or(Time::max()); }
  std::vector<CoordinatorMessage> work(Time now) override;
  void send(const NodeMessage& message, Time now) override;
  net::HostPort master() const override { return options_.master; }
  bool hosts_coordinator() const override { return false; }
  bool finished() const override { return true; }

 private:
  // The agent's part.
  void on_round_ended(const RoundEnded& ended, Time now);
  void on_status(const StatusReport& report);
  void start_ranks(Time now);
  void deliver(CoordinatorMessage message);

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

  const Options options_;
  const std::string prefix_;
  net::FileDescriptor event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<NodeInfo> node_;
  Assignment place_;
  std::vector<CoordinatorMessage> messages_;
  bool succeeded_ = false;
  bool stop_ = false;
  /// The thread's connection to the store, which the object breaks off when it goes.
  net::FileDescriptor connection_;
  // The agent's own:
  /// The signal that told it to end.
  int drain_signal_ = 0;
  RestartPolicy restarts_;
  HangDetector hang_detector_;
  Time round_started_{};
  /// When the ranks are started anew.
  std::optional<Time> pause_end_;
  std::thread thread_;
};

}  // namespace lockstep::launch
