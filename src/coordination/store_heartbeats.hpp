#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "coordination/rank_session.hpp"

namespace lockstep::coordination {

/// Heartbeats through the store, for ranks that wait long for each other: a thread adds to this rank's
/// number, and a rank whose number stands still for `dead_after` is dead. A rank that has sent none yet has
/// not arrived, which may take any time. One thread at a time.
class StoreHeartbeats {
 public:
  /// Begins this rank's heartbeats. `session` must outlive it.
  explicit StoreHeartbeats(const RankSession& session);
  /// Ends them: others then take this rank for dead, unless they know that it has left.
  ~StoreHeartbeats();
  StoreHeartbeats(const StoreHeartbeats&) = delete;
  StoreHeartbeats& operator=(const StoreHeartbeats&) = delete;

  /// Sends a request to the store. False for this rank itself.
  bool is_dead(int member);
  /// Whether a heartbeat was ever sent. Sends a request to the store.
  bool has_arrived(int member) const;

 private:
  struct LastBeat {
    std::int64_t number = 0;
    net::Deadline seen_at;
  };

  std::string beats_key(int member) const;
  void beat_until_end();

  const RankSession& session_;
  std::map<int, LastBeat> last_beats_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace lockstep::coordination
