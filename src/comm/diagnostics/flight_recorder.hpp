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

/// A stretch of the program's own: trace::Range.
struct SpanRecord {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  long thread = 0;
};

/// Enters it among the last stretches of this process, which are in every dump: they belong to no group. Any
/// thread.
void add_span(SpanRecord span);

enum class OperationState : std::uint8_t { started, completed, failed };

/// An operation in the recorder: which one, for finish() and messages.
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

  /// How long ago it was begun.
  std::chrono::milliseconds age() const {
    return std::chrono::milliseconds((monotonic_now() - created) / 1'000'000);
  }
  /// "all_reduce #412 (bucket 2, Float [2097152], 8 MiB)".
  std::string text() const;
};

struct GroupFacts {
  std::string name;
  /// The ranks of the world that are in it, in the group's order.
  std::vector<int> ranks;
  std::string backend;
};

/// Remembers a rank's last operations, of all of its groups and backends. Any thread may call anything; an
/// operation costs two short locks and two looks at the clock.
class FlightRecorder {
 public:
  /// `capacity`: how many operations are kept; 0 keeps none, and only counts.
  FlightRecorder(int rank, int world_size, std::size_t capacity);

  /// The number under which begin() knows the group. `backend` names what carries it.
  int add_group(GroupFacts meta);

  OperationId begin(int group, const OpMeta& meta);
  /// The first call counts; later ones change nothing, nor one for an operation already forgotten.
  void finish(const OperationId& id, bool success);

  /// The operation, if it is still remembered.
  std::optional<OperationRecord> find(const OperationId& id) const;
  /// Collective number `sequence` of a group, if it is still remembered.
  std::optional<OperationRecord> find_collective(int group, std::uint64_t sequence) const;
  /// The oldest operation that has begun, not ended, and is still remembered.
  std::optional<OperationRecord> oldest_unfinished() const;

  /// How far a group is.
  struct Progress {
    std::uint64_t collectives = 0;
    std::uint64_t messages = 0;
    std::uint64_t finished = 0;
  };
  Progress progress(int group) const;
  std::uint64_t operations() const;
  /// The number of the group of that name, or -1.
  int find_group(const std::string& name) const;
  GroupFacts group(int number) const;
  int groups() const;

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return world_size_; }

  /// All of it. Fields that PyTorch's flight recorder has bear its names. `reason`: why it is asked for.
  nlohmann::json dump(const std::string& reason) const;

 private:
  /// With the lock; null: forgotten.
  OperationRecord* at(std::uint64_t serial) const;

  const int rank_;
  const int world_size_;
  mutable std::mutex mutex_;
  mutable std::vector<OperationRecord> ring_;
  std::uint64_t next_ = 1;
  std::vector<GroupFacts> groups_;
  std::vector<Progress> progress_;
};

}  // namespace lockstep::comm
