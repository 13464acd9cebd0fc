#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/store/memory_budget.hpp"

namespace lockstep::net {

/// Identifies a waiter: a number chosen by the caller.
using WaiterId = std::uint64_t;

/// The keys, the queues, and the waiters. Keys are in wire format. Independent of sockets; not thread-safe.
/// An operation that exceeds the budget throws StoreFull and stores nothing.
class KeyValueTable {
 public:
  explicit KeyValueTable(MemoryBudget& budget) : budget_(budget) {}

  void set(const std::string& key, std::string bytes);
  /// Null if there is no such key.
  Value get(const std::string& key) const;
  /// Whether there is such a key, or a non-empty queue.
  bool contains(const std::string& key) const;
  bool erase(const std::string& key);
  /// Throws BadRequest if the value is not a number.
  std::int64_t add(const std::string& key, std::int64_t amount);
  void append(const std::string& key, std::string_view bytes);
  /// Null if there is no such key and `expected` is not empty.
  Value compare_set(const std::string& key, std::string_view expected, std::string desired);

  void push(const std::string& queue, std::string bytes);
  /// Null if the queue is empty.
  Value pop(const std::string& queue);
  std::size_t length(const std::string& queue) const;

  std::size_t size() const { return values_.size(); }
  /// Views, valid until the table changes: copies would be outside the budget.
  std::vector<std::string_view> keys() const;
  /// Removes every key and queue that does not begin with `kept_prefix`.
  void clear(std::string_view kept_prefix);

  /// True if all keys exist. Otherwise the waiter is registered until each of them has existed once, or until
  /// `cancel`. A waiter has one wait at a time; the next one replaces it.
  bool wait(WaiterId waiter, const std::vector<std::string>& keys);
  void cancel(WaiterId waiter);
  /// The waiters whose wait has ended since the last call.
  std::vector<WaiterId> take_ready();

  /// Records from now on the keys with this prefix that are set, added to or appended to.
  void watch(std::string prefix) { watched_.push_back(std::move(prefix)); }
  /// The watched keys that have changed since the last call, each once.
  std::vector<std::string> take_changes();
  bool has_changes() const { return !changed_.empty(); }

 private:
  struct Wait {
    std::set<std::string> missing;
    Reservation reservation;
  };

  /// Modified only while it is not shared.
  using Stored = std::shared_ptr<StoredBytes>;

  Stored stored(std::string bytes, std::size_t key_bytes) const;
  void extend(StoredBytes& value, std::string_view bytes) const;
  void put(const std::string& key, Stored value);
  void arrived(const std::string& key, std::size_t most_waiters);
  bool came(WaiterId waiter, const std::string& key);
  void forget(WaiterId waiter);
  void note_change(const std::string& key);

  MemoryBudget& budget_;
  std::unordered_map<std::string, Stored> values_;
  /// Lists: an empty deque takes some 600 bytes, which the overhead of an object does not pay for.
  std::unordered_map<std::string, std::list<Value>> queues_;
  std::unordered_map<WaiterId, Wait> waits_;
  std::unordered_map<std::string, std::list<WaiterId>> waiters_;
  std::vector<WaiterId> ready_;
  std::vector<std::string> watched_;
  std::set<std::string> changed_;
};

}  // namespace lockstep::net
