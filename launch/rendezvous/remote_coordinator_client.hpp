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

/// The coordinator on another host, or in another launcher of this one.
///
/// A thread resolves its name and connects, again and again until it answers and has proved the job's secret,
/// or the time is over; the agent goes on listening to signals, and what it sends meanwhile is kept. From
/// then on the client sends a keep-alive at each interval; a coordinator that is silent for the
/// keep-alive timeout is lost.
class RemoteCoordinatorClient final : public CoordinatorClient {
 public:
  struct Options {
    net::HostPort endpoint;
    std::string secret;
    /// Which secret that is, for messages.
    std::string secret_name;
    std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
    std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
    std::chrono::milliseconds keep_alive_timeout = std::chrono::seconds(15);
    /// What the ranks get for the coordinator's host; empty: the address by which it was reached.
    std::string master_host;
    /// Where something listens already that can only be this job's coordinator, or a program in its way: what
    /// the system said. Then one that does not answer as a coordinator is an error at once.
    std::string port_in_use;
    /// Makes the client of a torchrun agent that hosts a plain store; none: such a host is refused.
    std::function<std::unique_ptr<CoordinatorClient>(const std::vector<net::Address>&)> torchrun;
  };

  RemoteCoordinatorClient(Options options, Time now);
  ~RemoteCoordinatorClient() override;

  int descriptor() const override;
  Time deadline() const override;
  std::vector<CoordinatorMessage> work(Time now) override;
  void send(const NodeMessage& message, Time now) override;
  net::HostPort master() const override;
  bool finished() const override { return true; }

 private:
  /// What the thread has come to: a connection, the addresses of a torchrun agent's store, or why neither.
  using Result = std::variant<std::string, net::FileDescriptor, std::vector<net::Address>>;

  // The thread's part. Both return nothing where it goes on.
  void find_coordinator();
  std::optional<Result> try_once();
  std::optional<Result> on_control_error(const net::ControlError& error,
                                         const std::vector<net::Address>& addresses);
  void note_problem(const std::string& text);
  std::string problem();

  // The agent's part.
  std::vector<CoordinatorMessage> search(Time now);
  std::vector<CoordinatorMessage> settle(Time now);
  std::vector<CoordinatorMessage> receive(Time now);
  void keep_alive(Time now);

  const Options options_;
  const Time join_deadline_;
  const Time name_deadline_;
  Time next_notice_;
  /// Readable when the thread has concluded.
  net::FileDescriptor event_;
  /// Of the thread until it has concluded.
  Result result_;
  std::mutex mutex_;
  /// What the last try met with, under the mutex.
  std::string problem_ = "no answer yet";
  std::atomic<bool> stop_ = false;
  std::vector<NodeMessage> unsent_;
  int drain_signal_ = 0;
  /// The coordinator was lost or not found, or has ended the job: what becomes of the connection is no news.
  bool over_ = false;

  std::unique_ptr<CoordinatorClient> torchrun_;
  std::optional<MessageConnection> connection_;
  net::Address coordinator_;
  net::FileDescriptor poll_;
  Time last_heard_;
  Time next_ping_;
  std::thread thread_;
};

}  // namespace lockstep::launch
