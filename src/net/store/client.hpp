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
  /// Whether to go on, with a secret in hand, at a store that cannot prove that it knows it: PyTorch's own,
  /// or a Server without a secret. False: ControlError.
  bool plain_server = true;
};

/// A client of our Server and of PyTorch's TCPStore (both of its backends). Keys are named as PyTorch's
/// clients name them.
///
/// Every call blocks until its answer is there or its deadline has come. Failures throw: TimeoutError at the
/// deadline, CommunicationError when the connection is lost or the answer makes no sense, UsageError for a
/// key or a value longer than the protocol takes. After a TimeoutError of any call but wait() and get(), and
/// after a CommunicationError, the connection is closed, and every further call throws.
///
/// One thread at a time. Every method is *Local*; get() and wait() wait for what other clients do.
class StoreClient {
 public:
  /// Connects to the first of `addresses` that answers; until the deadline a server may come to listen.
  /// Throws TimeoutError when none does, ControlError (net/handshake.hpp) when something else is there.
  StoreClient(const std::vector<Address>& addresses, StoreClientOptions options, Deadline deadline);

  void set(const std::string& key, std::string_view value, Deadline deadline);
  /// Waits for the key. A TimeoutError leaves the connection usable.
  std::string get(const std::string& key, Deadline deadline);
  /// What the key holds after it was set to `desired` if it held `expected` (or, with an empty `expected`, if
  /// it was not there). For a key that is not there and a non-empty `expected`: `expected`.
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired,
                          Deadline deadline);
  std::int64_t add(const std::string& key, std::int64_t amount, Deadline deadline);
  void append(const std::string& key, std::string_view value, Deadline deadline);
  /// Whether it was there.
  bool erase(const std::string& key, Deadline deadline);
  /// Whether all are there now.
  bool contains(const std::vector<std::string>& keys, Deadline deadline);
  /// Waits for all; false at the deadline, and the connection stays usable, also where the store says nothing
  /// at all.
  bool wait(const std::vector<std::string>& keys, Deadline deadline);
  /// Every key on the store, those of PyTorch's own included.
  std::int64_t count(Deadline deadline);
  std::vector<std::string> keys(Deadline deadline);

  /// Of keys that are there; an absent one reads as empty on our server, and breaks the connection on
  /// PyTorch's older backend.
  std::vector<std::string> get_many(const std::vector<std::string>& keys, Deadline deadline);
  void set_many(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                Deadline deadline);

  void push(const std::string& queue, std::string_view value, Deadline deadline);
  /// The oldest element; nothing when the queue is empty.
  std::optional<std::string> pop(const std::string& queue, Deadline deadline);
  std::int64_t length(const std::string& queue, Deadline deadline);

  /// Counts this client among those that a server waits for, as PyTorch's clients do; how many there are now.
  std::int64_t register_client(Deadline deadline);
  void ping(Deadline deadline);

  /// The connection once more. Shutting it down from another thread ends the call under way, and all later
  /// ones, with a CommunicationError. Throws CommunicationError where there are no descriptors left.
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
  bool wait_is_taken_back_ = false;  // And the store has not been heard on that.
};

}  // namespace lockstep::net
