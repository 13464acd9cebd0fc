#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collective_check.hpp"
#include "flight_recorder.hpp"
#include "lockstep/comm/diagnostics.hpp"
#include "membership.hpp"
#include "trace_writer.hpp"
#include "watch.hpp"

namespace lockstep::comm {

/// What a rank remembers and says of its operations: one for a group and all groups made of it.
struct Diagnostics {
  /// `store` is a corner of the outermost group's. A group of one has nobody to watch.
  static std::shared_ptr<Diagnostics> make(const Membership& members, const Store& store,
                                           const DiagnosticsOptions& options);

  DiagnosticsOptions options;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<TraceWriter> writer;
  /// Null in a group of one.
  std::shared_ptr<Watch> watch;
};

/// One group's view of it, for the operations that one backend carries. Any thread may call anything; begin()
/// in the order of the operations.
class GroupObserver {
 public:
  struct Place {
    Membership members;
    /// The same on all ranks, and no other group's.
    std::string group_name;
    std::chrono::milliseconds timeout;
  };

  /// `check_store` is the group's corner for comparing in detail; nullptr where that is not possible.
  GroupObserver(std::shared_ptr<Diagnostics> diagnostics, Place place, const std::string& backend,
                const Store* check_store);

  /// Enters an operation, and compares it with the other ranks' in detail if that is asked for. Throws as
  /// CollectiveCheck. `rows`: of an all_to_all.
  Ticket begin(const OperationFacts& facts, bool starts_now, const RowCounts* rows = nullptr);
  void finish(const Ticket& ticket, bool success) { diagnostics_->recorder->finish(ticket, success); }

  /// In a handler: throws the exception in flight again. Where it is about time, or a lost rank, the new one
  /// is Lockstep's own and says what the other ranks do.
  [[noreturn]] void explain_and_rethrow(const Ticket& ticket);

 private:
  /// `text`: what the backend says, if that is better than "timed out".
  [[noreturn]] void time_is_up(const OperationRecord& record, const std::string& text);
  /// `text` says which rank is lost, and how.
  [[noreturn]] void rank_is_lost(const OperationRecord& record, const std::string& text);
  void compare(const Ticket& ticket, const OperationFacts& facts, const RowCounts* rows);
  /// `named`: the text says whose doing it is.
  [[noreturn]] void connection_is_lost(const OperationRecord& record, const std::string& text, bool named);
  OperationRecord record_of(const Ticket& ticket) const;

  std::shared_ptr<Diagnostics> diagnostics_;
  Place place_;
  int group_;
  std::unique_ptr<CollectiveCheck> check_;
};

/// `check`: operations are compared through `store`, the group's corner, if the options ask for it in detail.
std::shared_ptr<GroupObserver> make_observer(const std::shared_ptr<Diagnostics>& diagnostics,
                                             GroupObserver::Place place, const std::string& backend,
                                             const Store& store, bool check);

}  // namespace lockstep::comm
