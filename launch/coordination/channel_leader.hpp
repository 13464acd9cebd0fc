#pragma once

#include "coordination/channel.hpp"
#include "coordination/leader_link.hpp"
#include "net/address.hpp"

namespace lockstep::launch {

/// The leader on another host (or in another launcher of this host), over a connection that has proved the
/// secret. Asks for a sign of life at each interval; a leader that is silent for the lease is lost.
class ChannelLeader final : public LeaderLink {
 public:
  /// How the leader is kept.
  struct Times {
    std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
    std::chrono::milliseconds lease = std::chrono::seconds(15);
    /// What the ranks get for its host; empty: the address by which it was reached.
    std::string master_host;
  };

  /// `leader` is the address at the other end of the channel: the ranks find the job's store there.
  ChannelLeader(Channel channel, const net::Address& leader, Times times, Time now);

  int descriptor() const override { return poll_.get(); }
  Time deadline() const override;
  std::vector<Json> work(Time now) override;
  void send(const Json& message, Time now) override;
  MasterAddress master() const override;
  bool hosts_leader() const override { return false; }
  bool judges_standstills() const override { return true; }
  bool finished() const override { return true; }

 private:
  void keep_alive(Time now);
  void vouch(const Json& request);
  void watch();

  Channel channel_;
  net::Address leader_;
  Times times_;
  net::FileDescriptor poll_;
  Time last_heard_;
  Time next_ping_;
  /// The loss was told, or the leader has said farewell: what becomes of the channel is no news any more.
  bool over_ = false;
};

}  // namespace lockstep::launch
