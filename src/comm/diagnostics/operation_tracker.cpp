#include "comm/diagnostics/operation_tracker.hpp"

#include <fmt/core.h>

#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "comm/backend/failed_operation.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "comm/errors.hpp"
#include "core/time.hpp"
#include "lockstep/core/error.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// How long rank 0 waits after giving up.
constexpr Milliseconds kReadingTime{500};

/// The ranks share the name that the first of them gives the run: its time in digits, so that a later run's
/// is greater, and something random.
std::shared_ptr<FlightRecorder> new_recorder(const GroupInfo& members, const Store& store,
                                             const DiagnosticsOptions& options) {
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  const std::string run = fmt::format("{:020}-{:08x}", now.count(), std::random_device()());
  auto recorder = std::make_shared<FlightRecorder>(members.rank, members.size(), options.trace_entries);
  recorder->set_run(store.set_if_absent("run", run));
  return recorder;
}

}  // namespace

Diagnostics::Diagnostics(const GroupInfo& members, const Store& store, DiagnosticsOptions wanted)
    : options(std::move(wanted)),
      recorder(new_recorder(members, store, options)),
      writer(std::make_shared<TraceWriter>(recorder, options.trace_dir)) {
  if (members.size() > 1) monitor = std::make_shared<PeerMonitor>(store, recorder, options.warn_after);
}

OperationTracker::OperationTracker(std::shared_ptr<Diagnostics> diagnostics, Scope scope,
                                   const std::string& backend, const Store& store)
    : diagnostics_(std::move(diagnostics)),
      scope_(std::move(scope)),
      group_(diagnostics_->recorder->add_group({scope_.group_name, scope_.members.names, backend})) {
  if (scope_.members.size() == 1) return;
  if (diagnostics_->options.check != CollectiveCheckLevel::detail) {
    if (backend == "gloo") advice_ = ". LOCKSTEP_DEBUG=detail verifies that all ranks make the same calls";
    return;
  }
  check_ = std::make_unique<CollectiveCheck>(store.with_prefix("check/" + backend), scope_.members,
                                             scope_.timeout);
}

void OperationTracker::abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (aborted_.load()) return;
  abort_reason_ = reason;
  aborted_.store(true);
}

void OperationTracker::throw_if_aborted(const std::string& what) const {
  if (!aborted_.load()) return;
  const std::lock_guard lock(abort_mutex_);
  throw CommunicationError(
      fmt::format("{}: {} was aborted: {}. Form the group again on every rank (reform), or "
                  "make a new one",
                  scope_.members.who, what, abort_reason_));
}

OperationId OperationTracker::begin(const OpMeta& meta, const RowCounts* rows) {
  if (aborted_.load()) throw_if_aborted(meta.name);
  const OperationId id = diagnostics_->recorder->begin(group_, meta);
  if (!check_) return id;
  try {
    if (meta.is_message)
      check_->before_message(meta);
    else
      check_->before(id, meta, rows);
  } catch (const TimeoutError&) {
    finish(id, false);
    time_is_up(record_of(id), "");
  } catch (const Error& error) {
    finish(id, false);
    diagnostics_->monitor->announce_departure(std::string("stopped: ") + error.what());
    diagnostics_->writer->write(error.what());
    throw;
  }
  return id;
}

OperationRecord OperationTracker::record_of(const OperationId& id) const {
  if (auto record = diagnostics_->recorder->find(id)) return *std::move(record);
  OperationRecord forgotten;
  forgotten.id = id;
  forgotten.meta.name = "an operation";
  return forgotten;
}

void OperationTracker::explain_and_rethrow(const OperationId& id) {
  finish(id, false);
  const OperationRecord record = record_of(id);
  try {
    rethrow_as_communication_error(fmt::format("{}: {} failed", scope_.members.who, record.text()));
  } catch (const WaitTimedOut&) {
    throw_if_aborted(record.text());
    time_is_up(record, "");
  } catch (const TimeoutError& error) {
    throw_if_aborted(record.text());
    time_is_up(record, error.what());
  } catch (const shm::PeerLost& error) {
    throw_if_aborted(record.text());
    rank_is_lost(record, error.what());
  } catch (const ConnectionLost& error) {
    throw_if_aborted(record.text());
    connection_is_lost(record, error.what(), false);
  } catch (const EarlierOperationFailed&) {
    throw_if_aborted(record.text());
    throw;
  } catch (const CommunicationError& error) {
    throw_if_aborted(record.text());
    connection_is_lost(record, error.what(), true);
  }
}

void OperationTracker::time_is_up(const OperationRecord& record, const std::string& text) {
  std::string what = text;
  if (text.empty()) {
    what = fmt::format("{}: {} timed out after {}", scope_.members.who, record.text(),
                       format_duration(record.age()));
  }
  diagnostics_->writer->write(what);
  if (!diagnostics_->monitor) throw TimeoutError(what);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const auto waiting = waiting_for(record, recorder.group(group_), recorder.rank(),
                                   diagnostics_->monitor->ask(coordination::kWaitTimes.peer_answer,
                                                              [&](const auto&) { return aborted_.load(); }));
  throw TimeoutError(fmt::format("{}: {}{}", what, waiting.text, advice_), waiting.missing);
}

/// Does not ask the other ranks, so it throws immediately.
void OperationTracker::rank_is_lost(const OperationRecord& record, const std::string& text) {
  // The rank may have given up because of its own timeout.
  if (record.age() > scope_.timeout * 9 / 10) time_is_up(record, text);
  diagnostics_->writer->write(text);
  if (diagnostics_->monitor) diagnostics_->monitor->announce_departure("gave up: " + text);
  throw CommunicationError(text);
}

void OperationTracker::connection_is_lost(const OperationRecord& record, const std::string& text,
                                          bool named) {
  // The rank that times out first closes connections, so the others are timing out too.
  if (record.age() > scope_.timeout * 9 / 10) time_is_up(record, named ? text : "");
  diagnostics_->writer->write(text);
  PeerMonitor* const monitor = diagnostics_->monitor.get();
  if (monitor == nullptr) throw CommunicationError(text);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const GroupFacts group = recorder.group(group_);
  std::string gone;
  const PeerStatus status = monitor->ask(coordination::kWaitTimes.peer_answer, [&](const auto& departed) {
    gone = departed_text(departed, group, recorder.rank());
    return !gone.empty() || aborted_.load();
  });
  throw_if_aborted(record.text());
  if (gone.empty()) gone = silent_text(status, group, recorder.rank());
  std::string all = gone.empty() ? text : fmt::format("{}; {}", text, gone);
  if (!named) all += advice_;
  // For ranks that find this one gone: tells them what it has found.
  monitor->announce_departure("gave up: " + all);
  // Rank 0 often hosts the store: other ranks must be able to read the reason before it exits.
  if (recorder.rank() == 0) std::this_thread::sleep_for(kReadingTime);
  throw CommunicationError(all);
}

}  // namespace lockstep::comm
