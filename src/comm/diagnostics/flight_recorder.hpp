#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/diagnostics/op_meta.hpp"

namespace lockstep::comm {

/// CLOCK_MONOTONIC of this host, in nanoseconds.
inline std::int64_t monotonic_now() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A range of the program: trace::Range.
struct SpanRecord {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  long thread = 0;
};

/// Adds it to the last ranges of this process. They belong to no group and are part of every dump. Any
/// thread.
void add_span(SpanRecord span);

enum class OperationState : std::uint8_t { started, completed, failed };

/// Identifies an operation in the recorder, for finish() and messages.
struct OperationId {
  std::uint64_t serial = 0;
  int group = 0;
  /// Counts the group's collectives, or its messages, from 1.
  std::uint64_t sequence = 0;
};

struct OperationRecord {
  OperationId id;
  OpMeta meta;
  LabelText label;
  OperationState state = OperationState::started;
  std::int64_t created = 0;
  std::int64_t finished = 0;

  /// Time since it began.
  std::chrono::milliseconds age() const {
    return std::chrono::milliseconds((monotonic_now() - created) / 1'000'000);
  }
  /// "all_reduce #412 (bucket 2, Float [2097152], 8 MiB)".
  std::string text() const;
};

struct GroupFacts {
  std::string name;
  /// The group's ranks in the world, in the group's order.
  std::vector<int> ranks;
  std::string backend;
};

/// Records a rank's last operations in all of its groups and backends. Any thread may call any method. An
/// operation costs two short locks and two clock readings.
class FlightRecorder {
 public:
  /// `capacity`: number of operations kept; 0: only count them.
  FlightRecorder(int rank, int world_size, std::size_t capacity);

  /// Returns the group's number for begin(). `backend`: name of the group's backend.
  int add_group(GroupFacts meta);

  OperationId begin(int group, const OpMeta& meta);
  /// Only the first call has an effect. Operations that are no longer recorded are still counted.
  void finish(const OperationId& id, bool success);

  /// The operation, if it is still recorded.
  std::optional<OperationRecord> find(const OperationId& id) const;
  /// Collective number `sequence` of a group, if it is still recorded.
  std::optional<OperationRecord> find_collective(int group, std::uint64_t sequence) const;
  /// The oldest recorded operation that has not ended.
  std::optional<OperationRecord> oldest_unfinished() const;

  /// The number of operations that a group has started and finished.
  struct Progress {
    std::uint64_t collectives = 0;
    std::uint64_t messages = 0;
    std::uint64_t finished = 0;
  };
  Progress progress(int group) const;
  std::uint64_t operations() const;
  /// The number of the group with that name, or -1.
  int find_group(const std::string& name) const;
  GroupFacts group(int number) const;
  int groups() const;

  int rank() const noexcept { return rank_; }
  /// A name of the run that its ranks share; a later run's is greater. Set before the first dump.
  void set_run(std::string run) { run_ = std::move(run); }
  const std::string& run() const noexcept { return run_; }
  int world_size() const noexcept { return world_size_; }

  /// The whole content. Fields of PyTorch's flight recorder use its names. `reason`: why it is written.
  nlohmann::json dump(const std::string& reason) const;

 private:
  /// Requires the lock; null if no longer recorded.
  OperationRecord* at(std::uint64_t serial) const;

  const int rank_;
  std::string run_;
  const int world_size_;
  mutable std::mutex mutex_;
  mutable std::vector<OperationRecord> ring_;
  /// Unfinished operations that are no longer in the ring: few, as a rule.
  std::vector<std::uint64_t> evicted_;
  std::uint64_t next_ = 1;
  std::vector<GroupFacts> groups_;
  std::vector<Progress> progress_;
};

}  // namespace lockstep::comm
