#pragma once

#include "net/address.hpp"
#include "rendezvous/coordinator_client.hpp"
#include "rendezvous/message_connection.hpp"

namespace lockstep::launch {

/// The coordinator on another host (or in another launcher of this host), over a connection that has proved
/// the secret. Asks for a sign of life at each interval; a coordinator that is silent for the
/// keep_alive_timeout is lost.
class CoordinatorConnection final : public CoordinatorClient {
 public:
  /// How the coordinator is kept.
  struct Times {
    std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
    std::chrono::milliseconds keep_alive_timeout = std::chrono::seconds(15);
    /// What the ranks get for its host; empty: the address by which it was reached.
    std::string master_host;
  };

  /// `coordinator` is the address at the other end of the channel: the ranks find the job's store there.
  CoordinatorConnection(MessageConnection channel, const net::Address& coordinator, Times times, Time now);

  int descriptor() const override { return poll_.get(); }
  Time deadline() const override;
  std::vector<Json> work(Time now) override;
  void send(const Json& message, Time now) override;
  net::HostPort master() const override;
  bool hosts_coordinator() const override { return false; }
  bool judges_standstills() const override { return true; }
  bool finished() const override { return true; }

 private:
  void keep_alive(Time now);
  void verify_peer_uid(const Json& request);
  void watch();

  MessageConnection channel_;
  net::Address coordinator_;
  Times times_;
  net::FileDescriptor poll_;
  Time last_heard_;
  Time next_ping_;
  /// The loss was told, or the coordinator has said farewell: what becomes of the channel is no news any
  /// more.
  bool over_ = false;
};

}  // namespace lockstep::launch
