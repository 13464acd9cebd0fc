#pragma once

#include <string>

#include "shm/processors.hpp"

namespace lockstep::shm {

/// What two ranks must have in common before it is worth trying whether they share memory: the kernel that
/// runs (its boot id), the network namespace, in which abstract sockets live, and the user.
std::string host_identity();

/// What a rank says of itself on the store.
struct PeerAddress {
  std::string host;       // Who might share memory.
  std::string host_name;  // For messages.
  std::string socket;     // Where it can be reached by those who might.
  std::string secret;     // Who knows it has read this.
  Processors processors;

  /// This rank's own, with new random words. `host`: where it says it is; empty: where it is. `threads`: how
  /// many compute.
  static PeerAddress make(const std::string& host, int threads);
  static PeerAddress read(const std::string& text);
  std::string text() const;
};

/// How a rank got on with the others.
struct ConnectReport {
  std::string reached;  // A digit for each rank of the group: 1, this rank has reached it.
  std::string trouble;  // Why it has no memory to share; empty: it has.
  std::string failure;  // Why it did not reach the first one that it did not.

  static ConnectReport read(const std::string& text);
  std::string text() const;
};

}  // namespace lockstep::shm
