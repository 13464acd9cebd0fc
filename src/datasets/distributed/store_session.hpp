#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// How ranks that work together watch each other.
struct StoreSessionOptions {
  /// How often a rank shows that it lives.
  std::chrono::milliseconds beat{1'000};
  /// A rank that has begun to show it, and then not for so long, is dead.
  std::chrono::milliseconds dead_after{10'000};
  /// The least time between two messages of a rank that waits.
  std::chrono::milliseconds message_interval{30'000};
};

/// A piece of work that all ranks of a job take part in, through the store alone: nobody waits in a
/// collective, so a slow rank never times out, and a dead one is noticed within seconds. Ranks may be threads
/// of one process. One thread at a time but for check(), fail(), key() and store(), which are for any.
class StoreSession {
 public:
  /// `what` is how messages call the work: "map 'tokenize'". *Collective*, without waiting.
  StoreSession(const DistributedContext& ranks, std::string what, StoreSessionOptions options = {});
  /// The beats end. No word is said to the others: leave() does.
  ~StoreSession();
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  /// A key of this session.
  std::string key(const std::string& name) const { return prefix_ + name; }
  KeyValueStore& store() const { return *store_; }
  const DistributedContext& ranks() const { return ranks_; }

  /// Throws RemoteError when a rank has failed, with that rank's words.
  void check() const;
  /// Throws RemoteError when the next rank is dead: of ranks that are all at work each watches one.
  /// `describe` says what this one is at. One call costs a question to the store.
  void check_neighbour(const std::string& describe);
  /// The others are to fail with this text. The first failure counts. Never throws.
  void tell(const std::string& text) noexcept;
  /// The same, and leaves once they have heard of it, or after a few seconds.
  void fail(const std::string& text) noexcept;

  /// Waits until `ready` says so. Now and then writes "waiting " and what `describe` gives to standard error.
  /// Throws RemoteError when a rank fails or when one that `awaited` names dies.
  void wait_until(const std::function<bool()>& ready, const std::function<std::string()>& describe,
                  const std::function<std::vector<int>()>& awaited);
  /// Waits for a key that `rank` sets, and returns what it holds.
  std::string await(const std::string& name, int rank);

  /// This rank needs the others no more. Rank 0, which may host the store, waits until all have said so or
  /// are dead. *Collective*.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
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

/// Does something once on each node: local rank 0 calls `work`, and all ranks of its node get what it
/// returns. `work` is given a function that tells the others how far it is. Returns when all nodes are done;
/// what fails on one fails on all. *Collective*.
std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options = {});

}  // namespace lockstep
