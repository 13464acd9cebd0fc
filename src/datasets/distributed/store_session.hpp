#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/running_clock.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// How cooperating ranks monitor each other.
struct StoreSessionOptions {
  /// Interval of a rank's heartbeats.
  std::chrono::milliseconds beat{1'000};
  /// A rank that has sent a heartbeat, and then none for this long, is dead.
  std::chrono::milliseconds dead_after{10'000};
  /// Minimum time between two messages of a waiting rank.
  std::chrono::milliseconds message_interval{30'000};
};

/// A piece of work that all ranks of a job share, through the store only: no rank waits in a collective, so a
/// slow rank never causes a timeout, and a dead one is noticed within seconds. Ranks may be threads of one
/// process. One thread at a time, except for check(), fail(), key() and store(), which any thread may call.
class StoreSession {
 public:
  /// `what` names the work in messages, such as "map 'tokenize'". *Collective*, without waiting.
  StoreSession(const DistributedContext& ranks, std::string what, StoreSessionOptions options = {});
  /// Ends the heartbeats. Does not tell the others; leave() does.
  ~StoreSession();
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  /// A key of this session.
  std::string key(const std::string& name) const { return prefix_ + name; }
  KeyValueStore& store() const { return *store_; }
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
  void arrive(const std::string& name);
  /// Waits until all ranks have come to the point; `whom` names them in messages. Throws RemoteError as
  /// wait_until(): each rank monitors the next few that have not come.
  void await_all(const std::string& name, const std::string& whom);

  /// This rank no longer needs the others. Rank 0, which may host the store, waits until all have left or are
  /// dead; a rank without any heartbeat is given up after `dead_after`. *Collective*.
  void leave();

 private:
  using Clock = RunningClock;
  struct Sight {
    std::int64_t beats = 0;
    Clock::time_point since;
  };

  void leave_until(Clock::time_point deadline);
  void beat_until_end();
  bool is_dead(int rank);
  [[noreturn]] void fail_dead(int rank, const std::string& describe) const;
  std::string host_of(int rank) const;
  void say(const std::string& text) const;

  DistributedContext ranks_;
  std::shared_ptr<KeyValueStore> store_;
  std::string what_;
  std::string prefix_;
  StoreSessionOptions options_;
  std::map<int, Sight> seen_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool end_ = false;
  std::thread beats_;
};

/// Runs `work` once per node: local rank 0 calls it, and all ranks of the node get its result. `work` gets a
/// function that publishes its progress. Returns when all nodes have finished; a failure on one is an error
/// on all. *Collective*.
std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options = {});

}  // namespace lockstep
