#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/world.hpp"

namespace c10d {
class Store;
}

namespace lockstep {

/// The key-value store through which the ranks of a job find each other: a cheap handle to a client of
/// TCPStore's protocol or to c10d's HashStore. Copies share the same store. A blocking call occupies the
/// handle's connection; use `clone()` for a thread that waits while others use the store.
///
/// Every method is *Local*: it communicates with the store and waits for other ranks only if stated. Any
/// thread may call any method. Failures throw CommunicationError.
class Store {
 public:
  /// Connects to the job's store at MASTER_ADDR:MASTER_PORT: Lockstep's, or PyTorch's TCPStore. Rank 0 hosts
  /// it (listening only at that address if all ranks are on its host) unless the launcher does
  /// (`world.use_agent_store`).
  ///
  /// With a `world.job_token`, a Lockstep store and its clients prove it to each other; a store hosted by
  /// rank 0 then serves no other clients except processes of its own host and user (or root). Without a token
  /// it serves every host that reaches the port, as PyTorch's does.
  ///
  /// Keys have a prefix per restart: a restarted job never reads values of an earlier attempt. `timeout` also
  /// limits each later call's wait for an answer. Throws CommunicationError if the port is in use, if the
  /// host does not resolve, or if the port belongs to another job or program; TimeoutError if nothing answers
  /// within `timeout`, including a process that accepts the connection but stays silent.
  static Store connect(const World& world, std::chrono::milliseconds timeout = std::chrono::minutes(5));

  /// A store inside this process, for ranks that are threads.
  static Store in_memory();

  /// Wraps an existing store.
  explicit Store(std::shared_ptr<c10d::Store> store);

  /// The same store with `prefix` and a slash prepended to every key.
  Store with_prefix(const std::string& prefix) const;

  /// The same store through its own connection.
  Store clone() const;

  void set(const std::string& key, const std::string& value) const;

  /// Waits at most `timeout` for the key. Throws TimeoutError naming the key.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) const;

  /// Adds `amount` to an integer that starts at 0 and returns the sum. Atomic.
  std::int64_t add(const std::string& key, std::int64_t amount) const;

  /// Appends to a value that starts empty. Atomic.
  void append(const std::string& key, const std::string& value) const;

  /// Sets `key` to `value` if it is not set, and returns its current value. Atomic.
  std::string set_if_absent(const std::string& key, const std::string& value) const;

  /// Whether the key exists now.
  bool contains(const std::string& key) const;

  /// Waits for the key; returns false if `timeout` passes first.
  bool wait(const std::string& key, std::chrono::milliseconds timeout) const;

  /// Removes the key; returns false if it did not exist.
  bool erase(const std::string& key) const;

  /// The address of this host to offer to other ranks: that of the connection to the store's host, or of
  /// another interface if that is loopback and the job has several hosts. Empty for a store in memory.
  const std::string& local_address() const;

  /// The c10d object, for internal use and for programs that use c10d directly.
  const std::shared_ptr<c10d::Store>& c10d_store() const { return store_; }

 private:
  Store(std::shared_ptr<c10d::Store> store, std::string local_address);

  std::shared_ptr<c10d::Store> store_;
  std::string local_address_;
};

}  // namespace lockstep
