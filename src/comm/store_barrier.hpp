#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/store.hpp"
#include "membership.hpp"

namespace lockstep::comm {

/// Meetings of a fixed set of ranks through the store. Unlike a collective it knows, when time is up, who
/// came.
class StoreBarrier {
 public:
  StoreBarrier(Store store, Membership membership);

  /// Looks about once a second, while this rank waits, whether those who are missing can still come: why one
  /// cannot, or "". `missing`: their names; `waited`: since this rank came.
  using Look = std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds waited)>;

  /// Returns when all `size` ranks have called it. Throws TimeoutError naming the missing ranks;
  /// CommunicationError when the store is gone, or when `look` says that one cannot come. *Collective*. Rank
  /// 0 returns last: where it hosts the store, the others no longer need it then, so that a program may end
  /// right after a barrier.
  void arrive_and_wait(std::chrono::milliseconds timeout, const Look& look = nullptr);

  /// Ends the first meeting in that corner of the store for all who wait in it, and for who comes later,
  /// whoever is missing: they return as if all had come. *Local*.
  static void let_go(const Store& store);

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  void meet(std::chrono::milliseconds timeout, const Look& look);
  /// Until the deadline; false when it passes first.
  bool wait_for_all(const std::string& meeting, Deadline deadline, const Look& look) const;
  std::string look_around(const Look& look, const std::string& meeting,
                          std::chrono::milliseconds waited) const;
  std::vector<int> missing(const std::string& meeting) const;
  std::vector<int> others() const;
  void acknowledge(const std::string& meeting, Deadline deadline, const Look& look) const;
  void forget(std::int64_t meeting) const;
  /// Throws unless everybody has come after all.
  void name_the_missing(const std::string& meeting, std::chrono::milliseconds timeout) const;

  /// The beginning of every message.
  std::string who() const;

  Store store_;
  Membership membership_;
  std::int64_t meetings_ = 0;
};

/// "rank 2" or "ranks 1, 3, 4 and 7 more".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::comm
