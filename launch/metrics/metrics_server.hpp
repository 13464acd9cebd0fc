#pragma once

#include <functional>
#include <string>
#include <thread>

#include "net/address.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Limits on clients, which may be slow or hostile; smaller ones for tests.
struct MetricsServerLimits {
  /// Beyond it the oldest connection is closed.
  std::size_t most_connections = 16;
  /// Of a request with its headers; longer ones are answered with 431.
  std::size_t most_bytes = 8192;
  /// For a client to send its request and to read the answer.
  net::Milliseconds request_time{5000};
};

/// Serves one page by HTTP/1.1, at /metrics, to anyone who can reach the address: GET and HEAD, one request
/// per connection. A thread of its own answers, so that no client delays the launcher. All members are
/// *Local*.
class MetricsServer {
 public:
  /// Listens and starts the thread, which calls `page` for each answer. Throws CommunicationError if the
  /// address cannot be listened at, naming the process that holds the port if it is in use.
  MetricsServer(const net::Address& address, std::function<std::string()> page,
                const MetricsServerLimits& limits = {});
  /// Closes all connections.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// Where it listens, with the port that the system chose for port 0.
  const net::Address& address() const noexcept { return address_; }

 private:
  class Connection;
  class Connections;

  net::FileDescriptor listener_;
  net::FileDescriptor stop_;
  net::Address address_;
  std::thread thread_;
};

}  // namespace lockstep::launch
