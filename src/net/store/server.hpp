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
  /// What clients prove that they know. Empty: nobody can, and only plain clients are served.
  std::string secret = {};
  /// Whether PyTorch's own clients, which can prove nothing, are served: those of this host that belong to
  /// our user or to root, and those of hosts that the owner allows.
  bool plain_clients = true;
  /// Whether those of every other host may be served too, as PyTorch's own server does it: for jobs that have
  /// no secret, or that have agents which can prove nothing.
  bool every_host = false;
  /// Whether the owner is asked about each plain client of another host. False: that it may be served is
  /// enough, for owners who can ask nobody there.
  bool verify_peer_uid = true;
  /// The most connections, all together and from one host. The process's own limit of open files is kept too.
  std::size_t most_connections = 16384;
  std::size_t most_connections_per_host = 8192;
  /// The most that are not served yet; beyond it the oldest goes.
  std::size_t most_unauthenticated = 512;
  /// The memory for everything that clients send, half-sent requests and unread answers included.
  std::size_t most_bytes = std::size_t{512} << 20;
  /// How long a connection may take to authenticate, and the owner to verify a client's user.
  Milliseconds handshake_time{5000};
  /// How long a client may take for one request, and to read an answer.
  Milliseconds request_time{30000};
  /// Tells whether an address is one of this host's: another answer than the system's is for tests.
  std::function<bool(const Address&)> is_local = net::is_local;
  /// Tells whether a client of this host is of our user: as above. Called without the server's lock.
  std::function<bool(const Address&, const Address&)> is_our_user = net::verify_peer_uid;
  /// Called by the server's thread with a line on a connection that was closed; at most one a second. None:
  /// no word is said.
  std::function<void(const std::string&)> log = nullptr;
};

/// A plain client of an allowed host. `peer` is its end of the connection, `local` the server's: the agent
/// on that host asks verify_peer_uid(peer, local).
struct PeerUidRequest {
  std::uint64_t id = 0;
  Address peer;
  Address local;
};

/// A client that was turned away before it was served: it proved another secret, or proved none and may not
/// be served without.
struct RefusedClient {
  Address address;
  bool proved_wrong_secret = false;
};

/// A connection whose other end has proven that it knows the secret; non-blocking. `bytes_read_ahead` came
/// behind the proof.
struct AuthenticatedPeer {
  FileDescriptor socket;
  Address address;
  std::string bytes_read_ahead;
};

/// What the owner is to hear of.
struct ServerEvents {
  std::vector<AuthenticatedPeer> peers;
  std::vector<PeerUidRequest> peer_uid_requests;
  /// The first few since the last call.
  std::vector<RefusedClient> refused_clients;
  /// Watched keys that were set, added to or appended to, each once.
  std::vector<std::string> changed_keys;
};

/// Counts since the start, and what is open now.
struct ServerCounts {
  std::uint64_t accepted = 0;
  /// Closed before they were served.
  std::uint64_t turned_away = 0;
  /// Closed for what they sent, or did not send in time.
  std::uint64_t cut_off = 0;
  std::size_t open = 0;
  std::size_t bytes = 0;
};

/// A server for the protocol of PyTorch's TCPStore, and for the job's control connections, on one port.
///
/// One thread of its own does all the talking; it takes no signals and asks no name server. The owner's calls
/// may come from any thread and never wait for the network. Keys are named as clients name them. What a
/// client sends is bounded by the options, and a client that misbehaves loses its connection, nothing else.
///
/// Every method is *Local*.
class Server {
 public:
  /// Serves on a listening socket, for which see net/socket.hpp. Throws Error when the system refuses a
  /// thread or a descriptor.
  explicit Server(FileDescriptor listener, ServerOptions options = {});
  /// As stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Where it listens.
  Address address() const;

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key) const;
  bool contains(const std::string& key) const;
  bool erase(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t amount);
  /// How many clients have counted themselves, as PyTorch's do that wait for all the others.
  std::int64_t client_count() const;

  /// From now on, changes of keys that begin with the prefix are events.
  void watch(const std::string& prefix);
  /// Readable when there are events: for the owner's poll. Owned by the server.
  int events_descriptor() const;
  /// Everything since the last call.
  ServerEvents take_events();

  /// A host whose plain clients may be served once their user is verified (or are served at once:
  /// ServerOptions::verify_peer_uid); its port does not matter. Counted: forget() as often as allow().
  void allow(const Address& host);
  void forget(const Address& host);
  /// The answer to a PeerUidRequest. An id that is no longer waited for is passed over.
  void answer(std::uint64_t id, bool verified);

  /// Drops every key and queue that does not begin with `kept_prefix`, clients' counts included, and closes
  /// every store connection: nothing of what those clients sent is executed after the call. A new attempt
  /// begins with a fresh store.
  void clear(const std::string& kept_prefix);

  ServerCounts counts() const;

  /// Closes every connection and ends the thread. Values stay readable. Again: nothing.
  void stop();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::net
