#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Keys shared by the ranks of a job, through which they coordinate: the launcher's (launcher_store.hpp), in
/// this process's memory (memory_store.hpp), or a group's (comm/group_key_value_store.hpp). All members except
/// next_session() are *Local*, and throw CommunicationError if the store cannot be reached. Any thread may
/// call any of them; while one thread waits, calls of others may have to wait, too, unless the
/// implementation says otherwise.
class KeyValueStore {
 public:
  using Milliseconds = std::chrono::milliseconds;

  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets many keys with one request where the store can.
  virtual void set_many(const std::vector<std::pair<std::string, std::string>>& values) {
    for (const auto& [key, value] : values) set(key, value);
  }
  /// The value of a key that exists. Throws TimeoutError or CommunicationError if it does not.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a number that starts at 0, and returns the sum. Atomic.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Appends to a value that starts empty. Atomic; over a network nothing is waited for, so that it takes no
  /// time at a store that is gone.
  virtual void append(const std::string& key, const std::string& value) = 0;
  /// Sets the value if the key is not set, and returns the value that it then has. Atomic.
  virtual std::string set_if_absent(const std::string& key, const std::string& value) = 0;
  /// Whether the key exists now.
  virtual bool contains(const std::string& key) = 0;
  /// Waits for the key; false if `limit` passes first.
  virtual bool wait(const std::string& key, Milliseconds limit) = 0;
  /// Removes the key; false if it did not exist.
  virtual bool erase(const std::string& key) = 0;

  /// How often this rank has begun to coordinate over this store before; all ranks do so in the same order.
  /// *Collective*.
  virtual std::uint64_t next_session() noexcept { return sessions_++; }

 private:
  std::atomic<std::uint64_t> sessions_{0};
};

}  // namespace lockstep
