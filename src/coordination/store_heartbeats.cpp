#include "coordination/store_heartbeats.hpp"

#include <fmt/core.h>

namespace lockstep::coordination {

StoreHeartbeats::StoreHeartbeats(const RankSession& session) : session_(session) {
  thread_ = std::thread([this] { beat_until_end(); });
}

StoreHeartbeats::~StoreHeartbeats() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

std::string StoreHeartbeats::beats_key(int member) const {
  return session_.key(fmt::format("beats/{}", member));
}

void StoreHeartbeats::beat_until_end() {
  const std::string beats = beats_key(session_.members().rank);
  std::unique_lock lock(mutex_);
  try {
    do {
      lock.unlock();
      session_.store().add(beats, 1);
      lock.lock();
    } while (!ending_.wait_for(lock, session_.times().beat, [&] { return end_; }));
  } catch (const std::exception&) {
    // The store is gone; the thread that needs it reports that.
  }
}

bool StoreHeartbeats::is_dead(int member) {
  if (member == session_.members().rank) return false;
  const std::int64_t beats = session_.store().add(beats_key(member), 0);
  auto& last = last_beats_[member];
  if (beats != last.number) last = {beats, session_.now()};
  return beats > 0 && session_.now() - last.seen_at >= session_.times().dead_after;
}

bool StoreHeartbeats::has_arrived(int member) const { return session_.store().add(beats_key(member), 0) > 0; }

}  // namespace lockstep::coordination
