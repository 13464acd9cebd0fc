#pragma once

#include <chrono>
#include <vector>

#include "net/address.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// An agent's way to the coordinator of its job: the one in this process, one on another host, or a torchrun
/// agent that knows no coordinators. Used by the agent's thread alone, and never blocks it.
class CoordinatorClient {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~CoordinatorClient() = default;

  /// Becomes readable when `work` has something to do; -1: never.
  virtual int descriptor() const = 0;
  /// When `work` is to be called even if nothing happens; Time::max(): never.
  virtual Time deadline() const = 0;
  /// Does what there is to do, and returns what the coordinator says to this node.
  virtual std::vector<CoordinatorMessage> work(Time now) = 0;
  /// Sends to the coordinator; what it answers comes out of `work`.
  virtual void send(const NodeMessage& message, Time now) = 0;
  /// Where the ranks of this node find the job's store. Valid once a round has started.
  virtual net::HostPort master() const = 0;
  /// Whether this node may go: the one that has the coordinator in its process goes last.
  virtual bool finished() const = 0;
};

}  // namespace lockstep::launch
