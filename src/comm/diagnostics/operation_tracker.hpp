#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/diagnostics/collective_check.hpp"
#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_monitor.hpp"
#include "comm/diagnostics/trace_writer.hpp"
#include "comm/store_session.hpp"
#include "lockstep/comm/diagnostics.hpp"

namespace lockstep::comm {

/// What a rank remembers and says of its operations: one for a group and all groups made of it.
struct Diagnostics {
  /// `store` has a key prefix below the outermost group's. A group of one has no peers to monitor.
  Diagnostics(const GroupInfo& members, const Store& store, DiagnosticsOptions wanted);

  DiagnosticsOptions options;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<TraceWriter> writer;
  /// Null in a group of one.
  std::shared_ptr<PeerMonitor> monitor;
};

/// One group's view of it, for the operations that one backend carries. Any thread may call anything; begin()
/// in the order of the operations.
class OperationTracker {
 public:
  /// Whose operations these are.
  struct Scope {
    GroupInfo members;
    /// The same on all ranks, and no other group's.
    std::string group_name;
    std::chrono::milliseconds timeout;
  };

  /// `store` has the group's key prefix, for verifying in detail. `backend` names what carries the
  /// operations.
  OperationTracker(std::shared_ptr<Diagnostics> diagnostics, Scope scope, const std::string& backend,
                   const Store& store);

  /// Enters an operation, and compares it with the other ranks' in detail if that is asked for. Throws as
  /// CollectiveCheck. `rows`: of an all_to_all.
  OperationId begin(const OpMeta& meta, const RowCounts* rows = nullptr);
  void finish(const OperationId& id, bool success) { diagnostics_->recorder->finish(id, success); }

  /// In a handler: throws the exception in flight again. Where it is about time, or a lost rank, the new one
  /// is Lockstep's own and says what the other ranks do.
  [[noreturn]] void explain_and_rethrow(const OperationId& id);

 private:
  /// `text`: what the backend says, if that is better than "timed out".
  [[noreturn]] void time_is_up(const OperationRecord& record, const std::string& text);
  /// `text` says which rank is lost, and how.
  [[noreturn]] void rank_is_lost(const OperationRecord& record, const std::string& text);
  /// `named`: the text says which rank is to blame.
  [[noreturn]] void connection_is_lost(const OperationRecord& record, const std::string& text, bool named);
  OperationRecord record_of(const OperationId& id) const;

  std::shared_ptr<Diagnostics> diagnostics_;
  Scope scope_;
  int group_;
  std::unique_ptr<CollectiveCheck> check_;
  std::string advice_;  // Behind errors that a mistake in the calls may have caused, where none are verified.
};

}  // namespace lockstep::comm
