#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "net/address.hpp"
#include "net/file_descriptor.hpp"
#include "net/handshake.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/message_connection.hpp"

namespace lockstep::launch {

/// The coordinator on another host, or in another launcher on this host.
///
/// A thread resolves its name and connects, repeatedly, until the coordinator has proved the job's secret or
/// the join timeout is over. If the name turns out to mean this host, this node hosts the coordinator. The
/// agent still handles signals, and its messages are kept meanwhile. Once
/// connected, the client sends a keep-alive at each interval; a coordinator that is silent for the keep-alive
/// timeout is lost.
class RemoteCoordinatorClient final : public CoordinatorClient {
 public:
  struct Options {
    net::HostPort endpoint;
    std::string secret;
    /// Where the secret comes from, for messages.
    std::string secret_name;
    std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
    std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
    std::chrono::milliseconds keep_alive_timeout = std::chrono::seconds(15);
    /// The coordinator's host for the ranks; empty: the address by which it was reached.
    std::string master_host;
    /// The system's message if the port is in use on this host, by this job's coordinator or
    /// by another program. Then a program that does not answer is an error after 20 s instead of after the
    /// join timeout.
    std::string port_in_use;
    /// Creates the client of a torchrun agent that hosts a plain store; null: such a host is refused.
    std::function<std::unique_ptr<CoordinatorClient>(const std::vector<net::Address>&)> torchrun;
    /// Whether this node is to host the coordinator itself, now that the endpoint's name resolves to these
    /// addresses; null: it never is. Called by the thread.
    std::function<bool(const std::vector<net::Address>&)> is_host;
    /// Hosts it. Throws net::AddressInUse if another launcher does.
    std::function<std::unique_ptr<CoordinatorClient>()> host;
  };

  RemoteCoordinatorClient(Options options, Time now);
  ~RemoteCoordinatorClient() override;

  int descriptor() const override;
  Time deadline() const override;
  std::vector<CoordinatorMessage> work(Time now) override;
  void send(const NodeMessage& message, Time now) override;
  net::HostPort master() const override;
  bool finished() const override;

 private:
  /// The endpoint's name means this host, which is to host the coordinator.
  struct ThisHost {};
  /// The thread's result: a connection, the addresses of a torchrun agent's store, or an error message.
  using Result = std::variant<std::string, net::FileDescriptor, std::vector<net::Address>, ThisHost>;

  // Called by the thread. nullopt: try again.
  void find_coordinator();
  std::optional<Result> try_once();
  std::optional<Result> on_control_error(const net::ControlError& error,
                                         const std::vector<net::Address>& addresses);
  std::string after_port_in_use(const net::ControlError& error) const;
  void note_problem(const std::string& text);
  std::string problem();

  // Called by the agent.
  std::vector<CoordinatorMessage> search(Time now);
  std::vector<CoordinatorMessage> settle(Time now);
  std::optional<CoordinatorLost> become_host();
  std::vector<CoordinatorMessage> receive(Time now);
  void keep_alive(Time now);

  Options options_;
  const Time join_deadline_;
  const Time patience_end_;
  Time next_notice_;
  /// Readable when the thread has finished.
  net::FileDescriptor event_;
  /// Written by the thread, and read after it has finished.
  Result result_;
  std::mutex mutex_;
  /// The error of the last try, guarded by the mutex.
  std::string problem_ = "no answer yet";
  std::atomic<bool> stop_ = false;
  std::vector<NodeMessage> unsent_;
  int drain_signal_ = 0;
  /// The coordinator was lost or not found, or has ended the job: a closed connection is no longer reported.
  bool over_ = false;

  /// A torchrun agent, or the coordinator in this process.
  std::unique_ptr<CoordinatorClient> delegate_;
  std::optional<MessageConnection> connection_;
  net::Address coordinator_;
  net::FileDescriptor poll_;
  Time last_message_time_;
  Time next_ping_;
  std::thread thread_;
};

}  // namespace lockstep::launch
