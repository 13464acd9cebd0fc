#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::comm {

/// A listening TCP socket that closes itself unless it is handed on.
class ListenSocket {
 public:
  /// Binds `port` on the loopback interface alone when `one_host` and `host` is a loopback address, else on
  /// all interfaces: a host's own name often means loopback to the host itself, and another address to
  /// others. Throws CommunicationError saying what the system answered.
  ListenSocket(const std::string& host, std::uint16_t port, bool one_host);
  ~ListenSocket();
  ListenSocket(const ListenSocket&) = delete;
  ListenSocket& operator=(const ListenSocket&) = delete;

  /// Gives the descriptor away.
  int release();

 private:
  int descriptor_;
};

/// Waits until somebody listens at `host`:`port`; false when nobody does within `timeout`. Throws
/// CommunicationError when the host does not resolve. *Local*.
bool await_listener(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

/// The address of the interface by which this host reaches `host`, as others can reach it: where that is
/// loopback and the job is not on `one_host`, the first address of another interface. Sends nothing. Throws
/// CommunicationError when the name does not resolve.
std::string local_address_towards(const std::string& host, std::uint16_t port, bool one_host);

}  // namespace lockstep::comm
