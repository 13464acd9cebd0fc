#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/address.hpp"
#include "net/file_descriptor.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/coordinator_connection.hpp"

namespace lockstep::launch {

/// A coordinator that is still to be reached. A thread resolves its name and connects, again and again until
/// it answers or the time is over, while the agent goes on listening to signals; what the agent sends
/// meanwhile is kept. From then on everything goes through the link that was found.
class RemoteCoordinatorClient final : public CoordinatorClient {
 public:
  struct Options {
    net::HostPort endpoint;
    std::string secret;
    std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
    std::chrono::milliseconds notice_interval = std::chrono::seconds(10);
    CoordinatorConnection::Times times;
    /// Makes the link to a Python agent that hosts a plain store; none: such a host is refused.
    std::function<std::unique_ptr<CoordinatorClient>(const std::vector<net::Address>&)> python;
  };

  RemoteCoordinatorClient(Options options, Time now);
  ~RemoteCoordinatorClient() override;

  int descriptor() const override;
  Time deadline() const override;
  std::vector<Json> work(Time now) override;
  void send(const Json& message, Time now) override;
  net::HostPort master() const override { return found_->master(); }
  bool hosts_coordinator() const override { return false; }
  bool judges_standstills() const override { return found_->judges_standstills(); }
  bool finished() const override { return true; }

 private:
  /// What the thread has come to.
  struct Result {
    std::string last_problem = "no answer yet";
    net::FileDescriptor socket;
    /// Where a Python agent's store is.
    std::vector<net::Address> plain_store;
    std::string failure;
  };

  // The thread's part. A function that concludes returns true.
  void find_coordinator();
  bool try_once();
  bool meet_plain_store(const std::vector<net::Address>& addresses);
  bool conclude(const std::function<void()>& write_result);
  bool give_up(const std::string& why);
  void note_problem(const std::string& text);
  std::string problem();

  std::vector<Json> settle(Time now);

  const Options options_;
  const Time until_;
  Time next_notice_;
  const Time name_until_;
  /// Readable when the thread has concluded.
  net::FileDescriptor event_;
  std::mutex mutex_;
  Result result_;
  std::atomic<bool> stop_ = false;
  std::vector<Json> unsent_;
  std::unique_ptr<CoordinatorClient> found_;
  bool failed_ = false;
  int drain_signal_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::launch
