#include "flight_recorder.hpp"

#include <algorithm>

namespace lockstep::comm {
namespace {

bool is_under_way(const OperationRecord& record) {
  return record.ticket.id != 0 && record.state == OperationState::started;
}

}  // namespace

std::string OperationRecord::text() const {
  std::string result = std::string(facts.name) + " #" + std::to_string(ticket.sequence);
  std::string details{label.view()};
  const auto add = [&](const std::string& part) { details += (details.empty() ? "" : ", ") + part; };
  if (facts.is_message && facts.peer >= 0) {
    add((std::string_view(facts.name) == "recv" ? "from place " : "to place ") + std::to_string(facts.peer));
  }
  if (*facts.dtype != '\0') add(std::string(facts.dtype) + " " + sizes_text(facts));
  if (*facts.dtype != '\0') add(size_text(facts.bytes));
  return details.empty() ? result : result + " (" + details + ")";
}

FlightRecorder::FlightRecorder(int rank, int world_size, std::size_t capacity)
    : rank_(rank), world_size_(world_size), ring_(capacity) {}

int FlightRecorder::add_group(GroupFacts facts) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(facts));
  progress_.emplace_back();
  return static_cast<int>(groups_.size()) - 1;
}

OperationRecord* FlightRecorder::at(std::uint64_t id) {
  if (ring_.empty()) return nullptr;
  OperationRecord& record = ring_[id % ring_.size()];
  return record.ticket.id == id ? &record : nullptr;
}

const OperationRecord* FlightRecorder::at(std::uint64_t id) const {
  return const_cast<FlightRecorder*>(this)->at(id);
}

Ticket FlightRecorder::begin(int group, const OperationFacts& facts, bool starts_now) {
  const std::int64_t now = monotonic_now();
  const std::lock_guard lock(mutex_);
  Progress& progress = progress_[static_cast<std::size_t>(group)];
  const Ticket ticket{next_++, group, facts.is_message ? ++progress.messages : ++progress.collectives};
  if (ring_.empty()) return ticket;
  ring_[ticket.id % ring_.size()] = {
      .ticket = ticket,
      .facts = facts,
      .label = OperationLabel::current(),
      .state = starts_now ? OperationState::started : OperationState::scheduled,
      .created = now,
  };
  return ticket;
}

void FlightRecorder::finish(const Ticket& ticket, bool success) {
  const std::int64_t now = monotonic_now();
  const std::lock_guard lock(mutex_);
  OperationRecord* record = at(ticket.id);
  if (record == nullptr || record->finished != 0) return;
  record->state = success ? OperationState::completed : OperationState::failed;
  record->finished = now;
  ++progress_[static_cast<std::size_t>(ticket.group)].finished;
}

std::optional<OperationRecord> FlightRecorder::find(const Ticket& ticket) const {
  const std::lock_guard lock(mutex_);
  const OperationRecord* record = at(ticket.id);
  return record == nullptr ? std::nullopt : std::optional(*record);
}

std::optional<OperationRecord> FlightRecorder::find_collective(int group, std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  for (const auto& record : ring_) {
    const Ticket& ticket = record.ticket;
    if (ticket.id != 0 && ticket.group == group && ticket.sequence == sequence && !record.facts.is_message) {
      return record;
    }
  }
  return std::nullopt;
}

std::optional<OperationRecord> FlightRecorder::oldest_unfinished() const {
  const std::lock_guard lock(mutex_);
  const OperationRecord* oldest = nullptr;
  for (const auto& record : ring_) {
    if (is_under_way(record) && (oldest == nullptr || record.ticket.id < oldest->ticket.id)) oldest = &record;
  }
  return oldest == nullptr ? std::nullopt : std::optional(*oldest);
}

FlightRecorder::Progress FlightRecorder::progress(int group) const {
  const std::lock_guard lock(mutex_);
  return progress_.at(static_cast<std::size_t>(group));
}

std::uint64_t FlightRecorder::operations() const {
  const std::lock_guard lock(mutex_);
  return next_ - 1;
}

int FlightRecorder::find_group(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) { return group.name == name; });
  return found == groups_.end() ? -1 : static_cast<int>(found - groups_.begin());
}

GroupFacts FlightRecorder::group(int number) const {
  const std::lock_guard lock(mutex_);
  return groups_.at(static_cast<std::size_t>(number));
}

int FlightRecorder::groups() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(groups_.size());
}

}  // namespace lockstep::comm
