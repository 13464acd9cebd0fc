#pragma once

#include <string>

#include "shm/processors.hpp"

namespace lockstep::shm {

/// What two ranks must have in common before it is worth trying whether they share memory: the kernel that
/// runs (its boot id), the network namespace, in which abstract sockets live, and the user.
std::string host_identity();

/// What a rank publishes about itself in the bootstrap store.
struct PeerAddress {
  std::string host;       // host_identity(): ranks with the same one try to share memory.
  std::string host_name;  // For messages.
  std::string socket;     // Abstract name of its local socket.
  std::string secret;     // Proves that a peer has read this address.
  Processors processors;

  /// This rank's own, with a new socket name and secret. `host`: instead of host_identity(), unless empty.
  /// `threads`: how many of them compute.
  static PeerAddress make(const std::string& host, int threads);
  static PeerAddress read(const std::string& text);
  std::string text() const;
};

/// Which ranks a rank has connected to.
struct ConnectReport {
  std::string reached;  // A digit for each rank of the group: 1, connected.
  std::string trouble;  // Why it could not create its segment; empty: it could.
  std::string failure;  // The first connection error.

  static ConnectReport read(const std::string& text);
  std::string text() const;
};

}  // namespace lockstep::shm
