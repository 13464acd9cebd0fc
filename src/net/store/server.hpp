#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/socket_owner.hpp"

namespace lockstep::net {

struct ServerOptions {
  /// The secret that clients prove to know. Empty: only plain clients are served.
  std::string secret = {};
  /// Whether PyTorch's clients, which can prove nothing, are served: those of this host that belong to this
  /// user or to root, and those of hosts that the owner allows.
  bool plain_clients = true;
  /// Whether plain clients of every other host may be served, as PyTorch's own server does: for jobs that
  /// have no secret, or that have agents which cannot prove it.
  bool every_host = false;
  /// Whether the owner is asked about each plain client of another host. False: serve it if its host may be
  /// served, for owners that cannot ask that host.
  bool verify_peer_uid = true;
  /// Maximum number of connections, in total and per host. The process's limit of open files also applies.
  std::size_t most_connections = 131072;
  std::size_t most_connections_per_host = 8192;
  /// Maximum number of unauthenticated connections; beyond it the oldest is closed.
  std::size_t most_unauthenticated = 4096;
  /// Limit of the memory for all data from clients, including incomplete requests and unread answers.
  std::size_t most_bytes = std::size_t{512} << 20;
  /// Time limit of a connection to authenticate, and of the owner to verify a client's user.
  Milliseconds handshake_time{5000};
  /// Time limit of a client for one request, and to read an answer.
  Milliseconds request_time{30000};
  /// Returns whether an address belongs to this host; replaced only by tests.
  std::function<bool(const Address&)> is_local = net::is_local;
  /// Returns whether a client of this host belongs to this user; replaced only by tests. Called without the
  /// server's lock.
  std::function<bool(const Address&, const Address&)> is_our_user = net::verify_peer_uid;
  /// Called by the server's thread with a line about a closed connection, at most once per second. Null: no
  /// log.
  std::function<void(const std::string&)> log = nullptr;
};

/// A plain client of an allowed host. `peer` is its end of the connection, `local` the server's: the agent on
/// that host calls verify_peer_uid(peer, local).
struct PeerUidRequest {
  std::uint64_t id = 0;
  Address peer;
  Address local;
};

/// A client that was refused before it was served: it proved another secret, or proved none and is not
/// allowed without.
struct RefusedClient {
  Address address;
  bool proved_wrong_secret = false;
};

/// A connection whose other end has proven the secret; non-blocking. `bytes_read_ahead` were received after
/// the proof.
struct AuthenticatedPeer {
  FileDescriptor socket;
  Address address;
  std::string bytes_read_ahead;
};

/// Events for the owner.
struct ServerEvents {
  std::vector<AuthenticatedPeer> peers;
  std::vector<PeerUidRequest> peer_uid_requests;
  /// The first few since the last call.
  std::vector<RefusedClient> refused_clients;
  /// Watched keys that were set, added to or appended to, each once.
  std::vector<std::string> changed_keys;
  /// A connection was closed since this process may open no more files.
  bool lacks_descriptors = false;
};

/// Totals since the start, and the current state.
struct ServerCounts {
  std::uint64_t accepted = 0;
  /// Closed before they were served.
  std::uint64_t turned_away = 0;
  /// Closed because of an invalid request or a timeout.
  std::uint64_t cut_off = 0;
  std::size_t open = 0;
  std::size_t bytes = 0;
};

/// A server for the protocol of PyTorch's TCPStore and for the job's control connections, on one port.
///
/// One thread does all communication; it handles no signals and queries no name server. The owner may call
/// from any thread; calls never wait for the network. Key names are those of clients. The options limit the
/// data from clients. A client that misbehaves only loses its connection.
///
/// All methods are *Local*.
class Server {
 public:
  /// Serves on a listening socket (see net/socket.hpp). Throws Error if the system refuses a thread or a
  /// descriptor.
  explicit Server(FileDescriptor listener, ServerOptions options = {});
  /// Calls stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The address it listens on.
  Address address() const;

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key) const;
  std::int64_t add(const std::string& key, std::int64_t amount);
  /// The number of clients that have counted themselves, as PyTorch's clients do that wait for all the
  /// others.
  std::int64_t client_count() const;

  /// Reports from now on changes of keys with this prefix as events.
  void watch(const std::string& prefix);
  /// Readable when there are events, for the owner's poll. Owned by the server.
  int events_descriptor() const;
  /// All events since the last call.
  ServerEvents take_events();

  /// Allows a host: its plain clients are served after their user is verified (without
  /// ServerOptions::verify_peer_uid: at once); the port is ignored. Counted: call forget() as often as
  /// allow().
  void allow(const Address& host);
  void forget(const Address& host);
  /// Answers a PeerUidRequest. An id that is no longer pending is ignored.
  void answer(std::uint64_t id, bool verified);

  /// Removes every key and queue that does not begin with `kept_prefix`, including clients' counts, and
  /// closes every store connection: no further request of those clients is executed. A new attempt thus
  /// begins with a fresh store.
  void clear(const std::string& kept_prefix);

  ServerCounts counts() const;

  /// Closes every connection and ends the thread. Values stay readable. Calling it again does nothing.
  void stop();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::net
