#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "coordination/messages.hpp"

namespace lockstep::launch {

/// Where the ranks of this node find the job's store.
struct MasterAddress {
  std::string host;
  std::uint16_t port = 0;
};

/// An agent's way to the leader of its job: the one that lives in this process, one on another host, or a
/// Python agent that knows no leaders. Used by the agent's thread alone, and never blocks it.
///
/// The messages are those of messages.hpp, and two that the link itself gives: `refuse` with a "text" (this
/// node may not take part), and `lost` with a "text" (the leader is gone, or could not be reached).
class LeaderLink {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~LeaderLink() = default;

  /// Becomes readable when `work` has something to do; -1: never.
  virtual int descriptor() const = 0;
  /// When `work` is to be called even if nothing happens; Time::max(): never.
  virtual Time deadline() const = 0;
  /// Does what there is to do, and returns what the leader says to this node.
  virtual std::vector<Json> work(Time now) = 0;
  /// Tells the leader; what it answers comes out of `work`.
  virtual void send(const Json& message, Time now) = 0;
  /// Valid once a round has started.
  virtual MasterAddress master() const = 0;
  /// Whether the leader's own node is this one: it goes last.
  virtual bool hosts_leader() const = 0;
  /// Whether the leader judges of ranks that stand still, on all nodes together.
  virtual bool judges_standstills() const = 0;
  /// Whether all other nodes have gone.
  virtual bool finished() const = 0;
};

}  // namespace lockstep::launch
