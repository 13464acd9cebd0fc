#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/store.hpp"
#include "net/deadline.hpp"
#include "shm/group_info.hpp"

// How the ranks of a group join, wait for each other and report a failure through the job's store, which
// works before there are connections and after they are lost.
namespace lockstep::comm {

using shm::GroupInfo;

/// Timeout for values that are already in the store.
inline constexpr std::chrono::seconds kAtOnce{1};

/// Barriers of a fixed set of ranks through the store. Unlike a collective, on timeout it knows who arrived.
class StoreBarrier {
 public:
  StoreBarrier(Store store, GroupInfo members);

  /// Called at intervals while this rank waits. Returns why one of the missing ranks cannot arrive any more,
  /// or "". What it throws ends the wait. `missing`: their names; `waited`: time since this rank's arrival.
  using Probe = std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds waited)>;

  /// Returns when all ranks have called it. Throws TimeoutError naming the missing ranks; CommunicationError
  /// if the store is gone or `probe` reports that a rank cannot arrive. *Collective*. Rank 0 returns last: if
  /// it hosts the store, the others no longer need it then, so that a program may end right after a barrier.
  /// `activity`: what this rank's heartbeat says meanwhile.
  void arrive_and_wait(std::chrono::milliseconds timeout, const Probe& probe = nullptr,
                       std::chrono::milliseconds probe_interval = std::chrono::seconds(1),
                       std::string_view activity = "barrier");

  /// Ends the first barrier under the key prefix of `store` for all ranks that wait in it or arrive later,
  /// even if others are missing: they return as if all had arrived. *Local*.
  static void release(const Store& store);

 private:
  using Deadline = net::Deadline;

  void run(std::chrono::milliseconds timeout, const Probe& probe, std::chrono::milliseconds probe_interval);
  /// Returns false if the deadline passes first.
  bool wait_for_all(const std::string& keys, Deadline deadline, const Probe& probe,
                    std::chrono::milliseconds probe_interval) const;
  std::string probe_missing(const Probe& probe, const std::string& keys,
                            std::chrono::milliseconds waited) const;
  std::vector<int> missing(const std::string& keys) const;
  std::vector<int> others() const;
  void acknowledge(const std::string& keys, Deadline deadline, const Probe& probe) const;
  /// Prefix of every message.
  std::string who() const;

  Store store_;
  GroupInfo members_;
  std::int64_t barriers_ = 0;
};

/// Waits until all ranks of a group have arrived, before anything is exchanged; returns their barrier.
/// `store` has the group's key prefix. *Collective*. Throws TimeoutError naming the missing ranks. Throws
/// CommunicationError, on every rank that has arrived or arrives later, if two processes claim one rank or
/// disagree on the group's size; it names both.
StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout);

/// Ends the join of ranks that cannot form a group: ranks that wait in join_group() or call it later throw
/// with this reason.
void abort_join(const Store& store, const std::string& reason);

/// The same store through its own connection, whose calls wait at most `answer` for the store. For
/// communication between ranks after a failure, which may have affected the store too. A store in memory has
/// no connections and is returned unchanged.
Store bounded(const Store& store, std::chrono::milliseconds answer);

/// Where the ranks of a group post the first failure: a rank that finds a connection closed reads the cause
/// there. It has its own connection, which does not wait for the program's use of the store, nor long for a
/// store that is gone. One thread at a time; only the constructor throws.
class FirstFailure {
 public:
  /// `store` must have a key prefix that nobody else uses.
  explicit FirstFailure(const Store& store);

  /// Appends to the failures posted by others. Errors are ignored: the store may be unreachable.
  void post(const std::string& reason) const noexcept;

  /// The first failure that was posted or is posted within `limit`; otherwise "".
  std::string read(std::chrono::milliseconds limit) const noexcept;

 private:
  Store store_;
};

/// "rank 2" or "ranks 1, 3, 4 and 7 more".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::comm
