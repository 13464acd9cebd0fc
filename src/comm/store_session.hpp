#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/store.hpp"
#include "shm/group_info.hpp"

// How the ranks of a group join, wait for each other and report a failure through the job's store, which
// works before there are connections and when they have broken.
namespace lockstep::comm {

using shm::GroupInfo;

/// Time enough to read what is in the store already.
inline constexpr std::chrono::seconds kAtOnce{1};

/// Barriers of a fixed set of ranks through the store. Unlike a collective it knows, when time is up, who
/// came.
class StoreBarrier {
 public:
  StoreBarrier(Store store, GroupInfo members);

  /// Asked about once a second, while this rank waits, whether those who are missing can still come: why one
  /// cannot, or "". `missing`: their names; `waited`: since this rank came.
  using Probe = std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds waited)>;

  /// Returns when all ranks have called it. Throws TimeoutError naming the missing ranks; CommunicationError
  /// when the store is gone, or when `probe` says that one cannot come. *Collective*. Rank 0 returns last:
  /// where it hosts the store, the others no longer need it then, so that a program may end right after a
  /// barrier.
  void arrive_and_wait(std::chrono::milliseconds timeout, const Probe& probe = nullptr);

  /// Ends the first barrier under the key prefix of `store` for all who wait in it, and for who comes later,
  /// whoever is missing: they return as if all had come. *Local*.
  static void release(const Store& store);

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  void run(std::chrono::milliseconds timeout, const Probe& probe);
  /// Until the deadline; false when it passes first.
  bool wait_for_all(const std::string& keys, Deadline deadline, const Probe& probe) const;
  std::string probe_missing(const Probe& probe, const std::string& keys,
                            std::chrono::milliseconds waited) const;
  std::vector<int> missing(const std::string& keys) const;
  std::vector<int> others() const;
  void acknowledge(const std::string& keys, Deadline deadline, const Probe& probe) const;
  /// The beginning of every message.
  std::string who() const;

  Store store_;
  GroupInfo members_;
  std::int64_t barriers_ = 0;
};

/// Waits until all ranks of a group have come, before anything is exchanged; gives their barrier. `store` has
/// the group's key prefix. *Collective*. Throws TimeoutError naming those who do not come;
/// CommunicationError, on every rank that has come or still comes, when two processes claim one rank or have
/// different ideas of the group's size: it names both.
StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout);

/// Ends the join of ranks that cannot be a group: who waits in join_group(), and who comes to it later,
/// throws with this reason.
void abort_join(const Store& store, const std::string& reason);

/// The same store over a connection of its own, whose calls wait no longer than `answer` for the store: for
/// what ranks say to each other when something is broken, which may be the way to the store. A store in
/// memory has no connections, and stays as it is.
Store bounded(const Store& store, std::chrono::milliseconds answer);

/// Where the ranks of a group post the first failure: whoever finds a connection closed reads there what had
/// happened. Over a connection of its own, which neither waits for the program's use of the store
/// nor long for a store that is gone. One thread at a time; nothing throws but the constructor.
class FirstFailure {
 public:
  /// `store` has a key prefix that nobody else uses.
  explicit FirstFailure(const Store& store);

  /// Appends to what others have posted, without waiting for the store, which may be out of reach.
  void post(const std::string& reason) const noexcept;

  /// What was posted first, or is within `limit`; else "".
  std::string read(std::chrono::milliseconds limit) const noexcept;

 private:
  Store store_;
};

/// "rank 2" or "ranks 1, 3, 4 and 7 more".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::comm
