#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "coordination/barrier.hpp"
#include "coordination/rank_session.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::train {

/// Barriers with names: the n-th call on each rank must have the same one. Each rank records where it is, so
/// that the others can report it. See ProcessExecution::wait_for_everyone_at. One thread per rank at a time.
class NamedBarrier {
 public:
  /// `warn_after`: time until the missing ranks are reported. The group's timeout applies.
  NamedBarrier(const Store& store, const ProcessGroup& group, std::chrono::milliseconds warn_after);

  void wait(const std::string& name);
  /// Makes the other ranks throw RemoteError with this text.
  void report_failure(const std::string& text) const;

 private:
  void check_name(const std::string& key, const std::string& name) const;
  void throw_if_failed(const std::string& name) const;
  void set_position(const std::string& text) const;
  std::string position_of(int rank) const;
  std::string report(const std::string& name, const std::vector<int>& missing,
                     std::chrono::milliseconds waited) const;

  coordination::RankSession session_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds warn_after_;
  coordination::Barrier barrier_;
  std::int64_t number_ = 0;
};

}  // namespace lockstep::train
