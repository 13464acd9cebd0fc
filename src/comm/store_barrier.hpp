#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group_info.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// Meetings of a fixed set of ranks through the store. Unlike a collective it knows, when time is up, who
/// came.
class StoreBarrier {
 public:
  StoreBarrier(Store store, GroupInfo membership);

  /// Looks about once a second, while this rank waits, whether those who are missing can still come: why one
  /// cannot, or "". `missing`: their names; `waited`: since this rank came.
  using Probe = std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds waited)>;

  /// Returns when all `size` ranks have called it. Throws TimeoutError naming the missing ranks;
  /// CommunicationError when the store is gone, or when `probe` says that one cannot come. *Collective*. Rank
  /// 0 returns last: where it hosts the store, the others no longer need it then, so that a program may end
  /// right after a barrier.
  void arrive_and_wait(std::chrono::milliseconds timeout, const Probe& probe = nullptr);

  /// Ends the first meeting under the key prefix of `store` for all who wait in it, and for who comes later,
  /// whoever is missing: they return as if all had come. *Local*.
  static void release(const Store& store);

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  void meet(std::chrono::milliseconds timeout, const Probe& probe);
  /// Until the deadline; false when it passes first.
  bool wait_for_all(const std::string& meeting, Deadline deadline, const Probe& probe) const;
  std::string probe_missing(const Probe& probe, const std::string& meeting,
                            std::chrono::milliseconds waited) const;
  std::vector<int> missing(const std::string& meeting) const;
  std::vector<int> others() const;
  void acknowledge(const std::string& meeting, Deadline deadline, const Probe& probe) const;
  void forget(std::int64_t meeting) const;
  /// Throws unless everybody has come after all.
  void name_the_missing(const std::string& meeting, std::chrono::milliseconds timeout) const;

  /// The beginning of every message.
  std::string who() const;

  Store store_;
  GroupInfo info_;
  std::int64_t barriers_ = 0;
};

/// "rank 2" or "ranks 1, 3, 4 and 7 more".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::comm
