#include "comm/diagnostics/operation_tracker.hpp"

#include <iostream>
#include <utility>

#include "comm/diagnostics/waiting_text.hpp"
#include "comm/errors.hpp"
#include "lockstep/core/error.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// How long a rank that gives up waits for the others' answers.
constexpr Milliseconds kAnswerTime{2000};

std::int64_t age_of(const OperationRecord& record) { return (monotonic_now() - record.created) / 1'000'000; }

void warn(const FlightRecorder& recorder, const OperationRecord& record, Milliseconds waited,
          const PeerStatus& status) {
  const auto waiting = waiting_for(record, recorder.group(record.id.group), recorder.rank(), status);
  // All have started it: it is slow, or done and nobody has looked yet.
  if (waiting.missing.empty()) return;
  std::cerr << "lockstep: rank " + std::to_string(recorder.rank()) + " waits in " + record.text() +
                   " since " + duration_text(waited.count()) + ": " + waiting.text + "\n"
            << std::flush;
}

}  // namespace

std::shared_ptr<Diagnostics> Diagnostics::make(const GroupInfo& members, const Store& store,
                                               const DiagnosticsOptions& options) {
  auto result = std::make_shared<Diagnostics>();
  result->options = options;
  result->recorder = std::make_shared<FlightRecorder>(members.rank, members.size(), options.trace_entries);
  result->writer = std::make_shared<TraceWriter>(result->recorder, options.trace_dir);
  if (members.size() == 1) return result;
  result->monitor = std::make_shared<PeerMonitor>(
      store, result->recorder, options.warn_after,
      [recorder = result->recorder](const OperationRecord& record, Milliseconds waited,
                                    const PeerStatus& status) { warn(*recorder, record, waited, status); });
  return result;
}

OperationTracker::OperationTracker(std::shared_ptr<Diagnostics> diagnostics, Place place,
                                   const std::string& backend, const Store& store)
    : diagnostics_(std::move(diagnostics)),
      place_(std::move(place)),
      group_(diagnostics_->recorder->add_group({place_.group_name, place_.members.names, backend})) {
  const bool detail = diagnostics_->options.check == CollectiveCheckLevel::detail;
  if (!detail || place_.members.size() == 1) return;
  check_ = std::make_unique<CollectiveCheck>(store.with_prefix("check/" + backend), place_.members,
                                             place_.timeout);
}

void OperationTracker::compare(const OperationId& id, const OpMeta& meta, const RowCounts* rows) {
  if (meta.is_message) {
    check_->before_message(meta);
  } else {
    check_->before(id, meta, rows);
  }
}

OperationId OperationTracker::begin(const OpMeta& meta, const RowCounts* rows) {
  const OperationId id = diagnostics_->recorder->begin(group_, meta, true);
  if (!check_) return id;
  try {
    compare(id, meta, rows);
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
  const std::string what = place_.members.who + ": " + record.text() + " failed";
  try {
    rethrow_as_communication_error(what);
  } catch (const WaitTimedOut&) {
    time_is_up(record, "");
  } catch (const TimeoutError& error) {
    time_is_up(record, error.what());
  } catch (const shm::PeerLost& error) {
    rank_is_lost(record, error.what());
  } catch (const ConnectionLost& error) {
    connection_is_lost(record, error.what(), false);
  } catch (const CommunicationError& error) {
    connection_is_lost(record, error.what(), true);
  }
}

void OperationTracker::time_is_up(const OperationRecord& record, const std::string& text) {
  std::string what = text;
  if (text.empty())
    what = place_.members.who + ": " + record.text() + " timed out after " + duration_text(age_of(record));
  diagnostics_->writer->write(what);
  if (!diagnostics_->monitor) throw TimeoutError(what);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const auto waiting =
      waiting_for(record, recorder.group(group_), recorder.rank(), diagnostics_->monitor->ask(kAnswerTime));
  throw TimeoutError(what + ": " + waiting.text, waiting.missing);
}

/// At once: nobody needs to be asked.
void OperationTracker::rank_is_lost(const OperationRecord& record, const std::string& text) {
  // It may have given up because its time was up.
  if (age_of(record) > place_.timeout.count() * 9 / 10) time_is_up(record, text);
  diagnostics_->writer->write(text);
  if (diagnostics_->monitor) diagnostics_->monitor->announce_departure("gave up: " + text);
  throw CommunicationError(text);
}

void OperationTracker::connection_is_lost(const OperationRecord& record, const std::string& text,
                                          bool named) {
  // Where one rank's time is up first, it closes connections, and the others' time is up by that.
  if (age_of(record) > place_.timeout.count() * 9 / 10) time_is_up(record, named ? text : "");
  diagnostics_->writer->write(text);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const auto departed =
      diagnostics_->monitor ? diagnostics_->monitor->departed() : std::map<int, std::string>();
  std::string gone = departed_text(departed, recorder.group(group_), recorder.rank());
  if (gone.empty() && diagnostics_->monitor)
    gone = silent_text(diagnostics_->monitor->ask(kAnswerTime), recorder.group(group_), recorder.rank());
  const std::string all = gone.empty() ? text : text + "; " + gone;
  // For those who find this rank gone, and with it what it has found.
  if (diagnostics_->monitor) diagnostics_->monitor->announce_departure("gave up: " + all);
  throw CommunicationError(all);
}

}  // namespace lockstep::comm
