#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "comm/diagnostics/collective_check.hpp"
#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_monitor.hpp"
#include "comm/diagnostics/trace_writer.hpp"
#include "coordination/group_info.hpp"
#include "lockstep/comm/diagnostics.hpp"

namespace lockstep::comm {

class SetUpRecord;

/// What a rank records and reports about its operations: one for a group and all its subgroups.
struct Diagnostics {
  /// `store` has a key prefix below the outermost group's. A group of one rank has no peers to monitor.
  Diagnostics(const GroupInfo& members, const Store& store, DiagnosticsOptions wanted);

  DiagnosticsOptions options;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<TraceWriter> writer;
  /// Null in a group of one.
  std::shared_ptr<PeerMonitor> monitor;
  /// Null unless lost ranks may be replaced.
  std::shared_ptr<SetUpRecord> set_up;
};

/// A group's interface to its Diagnostics, for the operations of one backend. Any thread may call any method;
/// begin() must be called in the order of the operations.
class OperationTracker {
 public:
  /// The group and backend that it tracks.
  struct Scope {
    GroupInfo members;
    /// Unique, and the same on all ranks.
    std::string group_name;
    std::chrono::milliseconds timeout;
  };

  /// `store` has the group's key prefix and is used to verify calls in detail. `backend`: name of the
  /// backend.
  OperationTracker(std::shared_ptr<Diagnostics> diagnostics, Scope scope, const std::string& backend,
                   const Store& store);

  /// "rank 1 of 2", for messages.
  const std::string& who() const noexcept { return scope_.members.who; }

  /// From now on operations that begin or fail throw CommunicationError with this reason, at once: other
  /// ranks are not asked. The first call counts.
  void abort(const std::string& reason);

  /// Records an operation and, if configured, compares it in detail with the other ranks' calls. Throws as
  /// CollectiveCheck does. `rows`: for an all_to_all.
  OperationId begin(const OpMeta& meta, const RowCounts* rows = nullptr);
  void finish(const OperationId& id, bool success) { diagnostics_->recorder->finish(id, success); }
  /// How many operations this rank has begun in the group and all its subgroups.
  std::uint64_t operations() const { return diagnostics_->recorder->operations(); }
  const std::shared_ptr<SetUpRecord>& set_up() const noexcept { return diagnostics_->set_up; }

  /// Called in a handler: rethrows the current exception. For a timeout or a lost rank it throws one of
  /// Lockstep's errors that says what the other ranks do.
  [[noreturn]] void explain_and_rethrow(const OperationId& id);

 private:
  /// `text`: the backend's message, if it is better than "timed out".
  [[noreturn]] void time_is_up(const OperationRecord& record, const std::string& text);
  /// `text` says which rank is lost, and why.
  [[noreturn]] void rank_is_lost(const OperationRecord& record, const std::string& text);
  /// `named`: the text names the rank that caused it.
  [[noreturn]] void connection_is_lost(const OperationRecord& record, const std::string& text, bool named);
  OperationRecord record_of(const OperationId& id) const;
  /// `what`: the operation.
  void throw_if_aborted(const std::string& what) const;

  std::shared_ptr<Diagnostics> diagnostics_;
  Scope scope_;
  int group_;
  std::unique_ptr<CollectiveCheck> check_;
  std::string advice_;  // Appended to errors that mismatched calls may have caused.
  mutable std::mutex abort_mutex_;
  std::string abort_reason_;
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::comm
