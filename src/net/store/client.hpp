#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/store/protocol.hpp"

namespace lockstep::net {

struct StoreClientOptions {
  /// Proven to a Server that asks for it. Empty: this is a plain client.
  std::string secret = {};
  /// Whether a client with a secret continues at a store that cannot prove it: PyTorch's own, or a Server
  /// without a secret. False: throws ControlError.
  bool plain_server = true;
};

/// A client of Server and of PyTorch's TCPStore (both of its backends). Key names are those of PyTorch's
/// clients.
///
/// Every call blocks until its answer or its deadline. Failures throw: TimeoutError at the deadline,
/// CommunicationError if the connection is lost or the answer is malformed, UsageError for a key or a value
/// beyond the protocol's limits. The connection is closed after a CommunicationError, and after a
/// TimeoutError of any call that is not waiting for a key; every further call throws.
///
/// One thread at a time. All methods are *Local*; get() and wait() wait for other clients.
class StoreClient {
 public:
  /// Connects to the first of `addresses` that answers; the server may start listening until the deadline.
  /// Throws TimeoutError if none answers, ControlError (net/handshake.hpp) if something else listens there.
  StoreClient(const std::vector<Address>& addresses, StoreClientOptions options, Deadline deadline);

  void set(const std::string& key, std::string_view value, Deadline deadline);
  /// Waits for the key. If nobody sets it in time, the TimeoutError leaves the connection usable.
  std::string get(const std::string& key, Deadline deadline);
  /// Sets the key to `desired` if its value is `expected` (or if `expected` is empty and the key does not
  /// exist), and returns its value. If the key does not exist and `expected` is not empty, returns
  /// `expected`.
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired,
                          Deadline deadline);
  std::int64_t add(const std::string& key, std::int64_t amount, Deadline deadline);
  void append(const std::string& key, std::string_view value, Deadline deadline);
  /// Returns whether the key existed.
  bool erase(const std::string& key, Deadline deadline);
  /// Whether all keys exist now.
  bool contains(const std::vector<std::string>& keys, Deadline deadline);
  /// Waits for all keys; false at the deadline. The connection then stays usable, even if the store does not
  /// answer at all.
  bool wait(const std::vector<std::string>& keys, Deadline deadline);
  /// The number of keys on the store, including PyTorch's own.
  std::int64_t count(Deadline deadline);
  std::vector<std::string> keys(Deadline deadline);

  /// The values of existing keys; a missing key reads as empty on Server, and breaks the connection on
  /// PyTorch's older backend.
  std::vector<std::string> get_many(const std::vector<std::string>& keys, Deadline deadline);
  void set_many(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                Deadline deadline);

  void push(const std::string& queue, std::string_view value, Deadline deadline);
  /// The oldest element; nothing if the queue is empty.
  std::optional<std::string> pop(const std::string& queue, Deadline deadline);
  std::int64_t length(const std::string& queue, Deadline deadline);

  /// Counts this client among those that a server waits for, as PyTorch's clients do. Returns the current
  /// number.
  std::int64_t register_client(Deadline deadline);
  void ping(Deadline deadline);

  /// A duplicate of the connection's descriptor. Shutting it down from another thread ends the current call
  /// and all later ones with a CommunicationError. Throws CommunicationError if no descriptors are left.
  FileDescriptor duplicate() const;

  /// The two ends of the connection.
  Address local() const { return local_address(socket_.get()); }
  Address remote() const { return remote_address(socket_.get()); }
  /// Whether the server has proven that it knows the secret.
  bool proven() const { return proven_; }

 private:
  template <class Read>
  auto call(const Writer& request, Deadline deadline, Read&& read);
  void send(const Writer& request, Deadline deadline);
  bool take_wait_back();
  bool settle(Deadline deadline);
  void check_open() const;

  FileDescriptor socket_;
  bool proven_ = false;
  bool wait_is_taken_back_ = false;  // The store has not answered the cancel_wait yet.
};

}  // namespace lockstep::net
