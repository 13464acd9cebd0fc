#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "coordination/rank_session.hpp"

namespace lockstep::coordination {

/// Barriers of a fixed set of ranks through the store. Unlike a collective, on timeout it knows who arrived.
class Barrier {
 public:
  explicit Barrier(RankSession session) : session_(std::move(session)) {}

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

  /// Ends the first barrier of `session` for all ranks that wait in it or arrive later, even if others are
  /// missing: they return as if all had arrived. *Local*.
  static void release(const RankSession& session);

 private:
  void run(std::chrono::milliseconds timeout, const Probe& probe, std::chrono::milliseconds probe_interval);
  std::string probe_missing(const Probe& probe, const std::string& point,
                            std::chrono::milliseconds waited) const;
  std::vector<int> missing(const std::string& point) const;
  std::vector<int> others() const;
  void leave_last(const std::string& point, net::Deadline deadline, const Probe& probe) const;
  /// Prefix of every message.
  std::string who() const;

  RankSession session_;
  std::int64_t barriers_ = 0;
};

}  // namespace lockstep::coordination
