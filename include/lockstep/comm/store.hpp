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

/// The key-value store through which the ranks of a job find each other: a cheap handle on a client of
/// TCPStore's protocol, or on c10d's HashStore. Copies share the same store. A blocking call holds the
/// handle's connection; use `clone()` for a thread that waits while others work.
///
/// Every method is *Local*: it talks to the store, and waits for other ranks only where it says so. Any
/// thread may call any method. Failures throw CommunicationError.
class Store {
 public:
  /// Joins the job's store at MASTER_ADDR:MASTER_PORT: ours, or PyTorch's TCPStore. Rank 0 hosts it (at that
  /// address alone when all ranks are on its host) unless the launcher does (`world.use_agent_store`).
  ///
  /// With a `world.job_token`, a store of ours and its clients prove it to each other, and a store that rank
  /// 0 hosts serves nobody else but processes of its own host and user. Without one it serves, as PyTorch's
  /// does, every other host that reaches the port.
  ///
  /// Keys are kept apart by restart: a restarted job never reads what an earlier attempt wrote. `timeout` is
  /// also how long each later call waits for an answer. Throws CommunicationError when the port is in use,
  /// when the host does not resolve, or when another job or program has the port; TimeoutError when nobody
  /// answers within `timeout`, a silent stranger included.
  static Store connect(const World& world, std::chrono::milliseconds timeout = std::chrono::minutes(5));

  /// A store inside this process, for ranks that are threads.
  static Store in_memory();

  /// Wraps a store that the program already has.
  explicit Store(std::shared_ptr<c10d::Store> store);

  /// The same store with `prefix` and a slash in front of every key.
  Store with_prefix(const std::string& prefix) const;

  /// The same store over a connection of its own.
  Store clone() const;

  void set(const std::string& key, const std::string& value) const;

  /// Waits at most `timeout` for the key; throws TimeoutError naming it.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) const;

  /// Adds `amount` to an integer that starts at 0 and returns the sum. Atomic.
  std::int64_t add(const std::string& key, std::int64_t amount) const;

  /// Appends to a value that starts empty. Atomic.
  void append(const std::string& key, const std::string& value) const;

  /// Sets `key` to `value` if nobody has set it; returns what it then holds. Atomic.
  std::string set_if_absent(const std::string& key, const std::string& value) const;

  /// Whether the key is there now.
  bool contains(const std::string& key) const;

  /// Waits for the key; false when `timeout` passes first.
  bool wait(const std::string& key, std::chrono::milliseconds timeout) const;

  /// Removes the key; false when it was not there.
  bool erase(const std::string& key) const;

  /// The address at which this process reached the store's host, as that host's network sees it: the one to
  /// offer to other ranks. Empty for a store in memory.
  const std::string& local_address() const;

  /// The c10d object, for the library's own use and for programs that speak c10d.
  const std::shared_ptr<c10d::Store>& c10d_store() const { return store_; }

 private:
  Store(std::shared_ptr<c10d::Store> store, std::string local_address);

  std::shared_ptr<c10d::Store> store_;
  std::string local_address_;
};

}  // namespace lockstep
