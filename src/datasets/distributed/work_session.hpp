#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordination/rank_session.hpp"
#include "coordination/store_heartbeats.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// A piece of work that all ranks of a job share, through the store only: no rank waits in a collective, so a
/// slow rank never causes a timeout, and a dead one is noticed within seconds. Ranks may be threads of one
/// process. One thread at a time, except for check(), tell(), fail(), key() and store(), which any thread may
/// call.
class WorkSession {
 public:
  /// `what` names the work in messages, such as "map 'tokenize'". *Collective*, without waiting.
  WorkSession(const DistributedContext& ranks, std::string what, coordination::WaitTimes times = {});

  /// A key of this session.
  std::string key(const std::string& name) const { return session_.key(name); }
  KeyValueStore& store() const { return session_.store(); }
  const DistributedContext& ranks() const { return ranks_; }

  /// Throws RemoteError, with the failed rank's text, if a rank has failed.
  void check() const;
  /// Throws RemoteError if the next rank is dead; each rank monitors one other. `describe` says what this
  /// rank is doing. Sends one request to the store.
  void check_neighbour(const std::string& describe);
  /// Makes the other ranks fail with this text. The first failure counts. Never throws.
  void tell(const std::string& text) noexcept;
  /// Same, then leaves when the others have received the failure, or after a few seconds.
  void fail(const std::string& text) noexcept;

  /// Waits until `ready` returns true. At intervals, writes "waiting " and the text of `describe` to standard
  /// error. Throws RemoteError if a rank fails, or if one that `awaited` returns dies.
  void wait_until(const std::function<bool()>& ready, const std::function<std::string()>& describe,
                  const std::function<std::vector<int>()>& awaited);
  /// Waits for a key that `rank` sets, and returns its value.
  std::string await(const std::string& name, int rank);
  /// Says that this rank has come to the point `name`, without waiting.
  void arrive(const std::string& name) const { session_.arrive(name); }
  /// Waits until all ranks have come to the point; `whom` names them in messages. Throws RemoteError as
  /// wait_until(): each rank monitors the next few that have not come.
  void await_all(const std::string& name, const std::string& whom);

  /// This rank no longer needs the others. Rank 0, which may host the store, waits until all have left or are
  /// dead; a rank without any heartbeat is given up after `dead_after`. *Collective*.
  void leave() { leave_until(net::Deadline::max()); }

  /// Does the session's work, from its beginning to its end: leaves after `work`, or tells the others why it
  /// has failed, and rethrows. Returns what `work` returns. *Collective*.
  template <class Work>
  auto run(const Work& work) {
    try {
      auto result = work();
      leave();
      return result;
    } catch (const std::exception& error) {
      fail(error.what());
      throw;
    }
  }

 private:
  void leave_until(net::Deadline deadline);
  bool is_dead(int rank) { return liveness_ && liveness_->is_dead(rank); }
  [[noreturn]] void fail_dead(int rank, const std::string& describe) const;
  std::string host_of(int rank) const;

  DistributedContext ranks_;
  std::string what_;
  coordination::RankSession session_;
  std::optional<coordination::StoreHeartbeats> liveness_;  // None for a single rank.
};

}  // namespace lockstep
