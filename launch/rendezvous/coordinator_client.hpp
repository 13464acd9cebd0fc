#pragma once

#include <chrono>
#include <vector>

#include "net/address.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// An agent's connection to the coordinator of its job: the one in this process, one on another host, or a
/// torchrun agent. Used by the agent's thread only, and never blocks it.
class CoordinatorClient {
 public:
  using Time = net::Deadline;
  virtual ~CoordinatorClient() = default;

  /// Becomes readable when `work` has something to do; -1: never.
  virtual int descriptor() const = 0;
  /// When to call `work` even if nothing happens; Time::max(): never.
  virtual Time deadline() const = 0;
  /// Does pending work, and returns the coordinator's messages to this node.
  virtual std::vector<CoordinatorMessage> work(Time now) = 0;
  /// Sends to the coordinator; `work` returns its answers.
  virtual void send(const NodeMessage& message, Time now) = 0;
  /// Address of the job's store for the ranks of this node. Valid after a round has started.
  virtual net::HostPort master() const = 0;
  /// Whether this node may exit: the one that hosts the coordinator exits last.
  virtual bool finished() const = 0;
};

}  // namespace lockstep::launch
