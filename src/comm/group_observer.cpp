#include "group_observer.hpp"

#include <iostream>
#include <utility>

#include "errors.hpp"
#include "lockstep/core/error.hpp"
#include "shm/watch.hpp"
#include "waiting_text.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// How long a rank that gives up waits for the others' answers.
constexpr Milliseconds kAnswerTime{2000};

std::int64_t age_of(const OperationRecord& record) { return (monotonic_now() - record.created) / 1'000'000; }

void warn(const FlightRecorder& recorder, const OperationRecord& record, Milliseconds waited,
          const Whereabouts& whereabouts) {
  const auto waiting = waiting_for(record, recorder.group(record.ticket.group), recorder.rank(), whereabouts);
  // All have started it: it is slow, or done and nobody has looked yet.
  if (waiting.missing.empty()) return;
  std::cerr << "lockstep: rank " + std::to_string(recorder.rank()) + " waits in " + record.text() +
                   " since " + duration_text(waited.count()) + ": " + waiting.text + "\n"
            << std::flush;
}

}  // namespace

std::shared_ptr<Diagnostics> Diagnostics::make(const Membership& members, const Store& store,
                                               const DiagnosticsOptions& options) {
  auto result = std::make_shared<Diagnostics>();
  result->options = options;
  result->recorder = std::make_shared<FlightRecorder>(members.rank, members.size(), options.trace_entries);
  result->writer = std::make_shared<TraceWriter>(result->recorder, options.trace_dir);
  if (members.size() == 1) return result;
  result->watch = std::make_shared<Watch>(
      store, result->recorder, options.warn_after,
      [recorder = result->recorder](const OperationRecord& record, Milliseconds waited,
                                    const Whereabouts& whereabouts) {
        warn(*recorder, record, waited, whereabouts);
      });
  return result;
}

GroupObserver::GroupObserver(std::shared_ptr<Diagnostics> diagnostics, Place place,
                             const std::string& backend, const Store* check_store)
    : diagnostics_(std::move(diagnostics)),
      place_(std::move(place)),
      group_(diagnostics_->recorder->add_group({place_.group_name, place_.members.names, backend})) {
  const bool detail = diagnostics_->options.check == CollectiveCheckLevel::detail;
  if (check_store == nullptr || !detail || place_.members.size() == 1) return;
  check_ = std::make_unique<CollectiveCheck>(*check_store, place_.members, place_.timeout);
}

std::shared_ptr<GroupObserver> make_observer(const std::shared_ptr<Diagnostics>& diagnostics,
                                             GroupObserver::Place place, const std::string& backend,
                                             const Store& store, bool check) {
  const Store corner = store.with_prefix("check/" + backend);
  return std::make_shared<GroupObserver>(diagnostics, std::move(place), backend, check ? &corner : nullptr);
}

void GroupObserver::compare(const Ticket& ticket, const OperationFacts& facts, const RowCounts* rows) {
  if (facts.is_message) {
    check_->before_message(facts);
  } else {
    check_->before(ticket, facts, rows);
  }
}

Ticket GroupObserver::begin(const OperationFacts& facts, bool starts_now, const RowCounts* rows) {
  const Ticket ticket = diagnostics_->recorder->begin(group_, facts, starts_now);
  if (!check_) return ticket;
  try {
    compare(ticket, facts, rows);
  } catch (const TimeoutError&) {
    finish(ticket, false);
    time_is_up(record_of(ticket), "");
  } catch (const Error& error) {
    finish(ticket, false);
    diagnostics_->watch->say_departure(std::string("stopped: ") + error.what());
    diagnostics_->writer->write(error.what());
    throw;
  }
  return ticket;
}

OperationRecord GroupObserver::record_of(const Ticket& ticket) const {
  if (auto record = diagnostics_->recorder->find(ticket)) return *std::move(record);
  OperationRecord forgotten;
  forgotten.ticket = ticket;
  forgotten.facts.name = "an operation";
  return forgotten;
}

void GroupObserver::explain_and_rethrow(const Ticket& ticket) {
  finish(ticket, false);
  const OperationRecord record = record_of(ticket);
  const std::string what = place_.members.who + ": " + record.text() + " failed";
  try {
    rethrow_as_communication_error(what);
  } catch (const TimeoutError& error) {
    const std::string text = error.what();
    // A backend of ours has its own words; c10d's say nothing about ranks.
    time_is_up(record, text.starts_with(what) ? "" : text);
  } catch (const shm::PeerLost& error) {
    rank_is_lost(record, error.what());
  } catch (const CommunicationError& error) {
    const std::string text = error.what();
    connection_is_lost(record, text, !text.starts_with(what));
  }
}

void GroupObserver::time_is_up(const OperationRecord& record, const std::string& text) {
  std::string what = text;
  if (text.empty())
    what = place_.members.who + ": " + record.text() + " timed out after " + duration_text(age_of(record));
  diagnostics_->writer->write(what);
  if (!diagnostics_->watch) throw TimeoutError(what);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const auto waiting =
      waiting_for(record, recorder.group(group_), recorder.rank(), diagnostics_->watch->ask(kAnswerTime));
  throw TimeoutError(what + ": " + waiting.text, waiting.missing);
}

/// At once: nobody needs to be asked.
void GroupObserver::rank_is_lost(const OperationRecord& record, const std::string& text) {
  // It may have given up because its time was up.
  if (age_of(record) > place_.timeout.count() * 9 / 10) time_is_up(record, text);
  diagnostics_->writer->write(text);
  if (diagnostics_->watch) diagnostics_->watch->say_departure("gave up: " + text);
  throw CommunicationError(text);
}

void GroupObserver::connection_is_lost(const OperationRecord& record, const std::string& text, bool named) {
  // Where one rank's time is up first, it closes connections, and the others' time is up by that.
  if (age_of(record) > place_.timeout.count() * 9 / 10) time_is_up(record, named ? text : "");
  diagnostics_->writer->write(text);
  const FlightRecorder& recorder = *diagnostics_->recorder;
  const auto departed = diagnostics_->watch ? diagnostics_->watch->departed() : std::map<int, std::string>();
  std::string gone = departed_text(departed, recorder.group(group_), recorder.rank());
  if (gone.empty() && diagnostics_->watch)
    gone = silent_text(diagnostics_->watch->ask(kAnswerTime), recorder.group(group_), recorder.rank());
  const std::string all = gone.empty() ? text : text + "; " + gone;
  // For those who find this rank gone, and with it what it has found.
  if (diagnostics_->watch) diagnostics_->watch->say_departure("gave up: " + all);
  throw CommunicationError(all);
}

}  // namespace lockstep::comm
