#include "shm/step_sync.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "coordination/wait_times.hpp"

namespace lockstep::shm {

StepSync::StepSync(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout)
    : members_(members),
      connections_(std::move(connections)),
      timeout_(timeout),
      spinner_(connections_.has_cpu_per_rank) {
  for (const auto& peer : connections_.peers) controls_.push_back(&control_of(*peer.segment));
}

std::byte* StepSync::area(int member, std::uint64_t step) const noexcept {
  return segment_of(member).base() + layout().staging + (step % 2) * layout().staging_bytes;
}

StepSlot& StepSync::step_slot(int member, std::uint64_t step) const noexcept {
  return control(member).step_slots[step % 2];
}

std::vector<const void*> StepSync::staged(std::size_t offset, const void* own) const {
  std::vector<const void*> addresses;
  addresses.reserve(controls_.size());
  for (int r = 0; r < size(); ++r) addresses.push_back(r == rank() && own != nullptr ? own : of(r) + offset);
  return addresses;
}

std::byte* StepSync::heap_buffer_of(int member) const noexcept {
  const std::int64_t offset = heap_offset_of(member);
  return offset < 0 ? nullptr : segment_of(member).base() + offset;
}

void StepSync::begin(Call call, std::int64_t heap_offset) {
  if (broken_) std::rethrow_exception(broken_);
  call.sequence = ++sequence_;
  call_ = call;
  throw_if_aborted([&] { return describe(call_); });
  control(rank()).begun.store(sequence_, std::memory_order_relaxed);
  show_buffer(heap_offset);
}

void StepSync::show_buffer(std::int64_t heap_offset) noexcept {
  step_slot(rank(), step_ + 1) = {call_, heap_offset};
  compared_ = false;
}

/// Steps only increase, so a rank that has arrived is not checked again.
bool StepSync::all_have_come() {
  for (; first_missing_ < size(); ++first_missing_) {
    if (control(first_missing_).step.load() < step_ + 1) return false;
  }
  return true;
}

std::vector<int> StepSync::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (control(r).step.load() < step_ + 1) ranks.push_back(r);
  }
  return ranks;
}

void StepSync::wait_for_all() {
  FutexEvent& event = control(0).steps;
  first_missing_ = 0;
  // The stores of the steps have a total order, so the last rank sees all others here: only it has to wake
  // the others.
  if (all_have_come()) return notify(event);
  LivenessCheck liveness(*this);
  wait_on(
      event, spinner_, [&] { return all_have_come(); },
      [&] {
        // A rank that has arrived meanwhile is not missing, even if it has died since.
        if (const auto ranks = missing(); !ranks.empty()) {
          liveness.check(ranks, false, [&] { return describe(call_); });
        }
      });
}

void StepSync::step() {
  try {
    throw_if_aborted([&] { return describe(call_); });
    control(rank()).step.store(step_ + 1);
    wait_for_all();
    ++step_;
    if (!compared_) compare_calls();
    compared_ = true;
  } catch (const std::exception& error) {
    give_up(std::current_exception(), error.what());
    throw;
  }
}

void StepSync::compare_calls() {
  const Call& first = step_slot(0, step_).call;
  for (int r = 1; r < size(); ++r) {
    const Call& other = step_slot(r, step_).call;
    if (other == first) continue;
    throw CommunicationError(disagreement(members_.who, {members_.called(0), describe(first)},
                                          {members_.called(r), describe(other)}));
  }
}

void StepSync::fail(const std::string& text) {
  give_up(std::make_exception_ptr(
              CommunicationError(fmt::format("{}: {}: {}", members_.who, describe(call_), text))),
          text.c_str());
  std::rethrow_exception(broken_);
}

void StepSync::give_up(const std::exception_ptr& reason, const char* text) noexcept {
  if (broken_) return;
  broken_ = reason;
  break_group(text);
}

void StepSync::break_group(const char* failure_text) noexcept {
  const std::lock_guard lock(failure_mutex_);
  Control& own = control(rank());
  if (own.presence.load() != Presence::failed) {
    std::strncpy(own.failure_text, failure_text, sizeof(own.failure_text) - 1);
    own.presence.store(Presence::failed);
  }
  notify(control(0).steps);
}

void StepSync::announce_failure(const char* reason) noexcept {
  if (control(rank()).presence.load() != Presence::here) return;
  break_group(reason);
  for (int r = 0; r < size(); ++r) notify(control(r).messages);
}

void StepSync::abort(const std::string& reason) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (aborted_.load()) return;
    abort_reason_ = reason;
    aborted_.store(true);
  }
  break_group(("was aborted: " + reason).c_str());
  for (int r = 0; r < size(); ++r) notify(control(r).messages);
}

void StepSync::throw_if_aborted(const std::function<std::string()>& what) const {
  if (!aborted_.load()) return;
  const std::lock_guard lock(abort_mutex_);
  throw Aborted(fmt::format("{}: {} was aborted: {}. This group cannot be used any more: make a new one",
                            members_.who, what(), abort_reason_));
}

std::optional<std::string> StepSync::loss_of(int member) const {
  const Peer& peer = peers()[static_cast<std::size_t>(member)];
  const std::uint64_t begun = control(member).begun.load();
  if (control(member).presence.load() == Presence::left)
    return fmt::format("{} left the group at its operation #{}", members_.called(member), begun);
  if (!peer.has_ended()) return std::nullopt;
  return fmt::format("{} (pid {}) has ended; the last operation that it started is #{}",
                     members_.called(member), peer.pid, begun);
}

std::string StepSync::loss_among(const std::vector<int>& names) const {
  for (int member = 0; member < size(); ++member) {
    if (member == rank() || std::ranges::find(names, members_.name(member)) == names.end()) continue;
    if (const auto loss = loss_of(member)) return *loss;
  }
  return "";
}

void StepSync::leave(bool quietly) noexcept {
  auto here = Presence::here;
  control(rank()).presence.compare_exchange_strong(here, Presence::left);
  if (quietly) return;
  notify(control(0).steps);
  for (int r = 0; r < size(); ++r) notify(control(r).messages);
}

/// Why the rank cannot arrive; std::nullopt if it still can.
std::optional<std::string> LivenessCheck::fate_of(int rank) const {
  const Control& control = sync_.control(rank);
  if (control.presence.load() != Presence::failed) return sync_.loss_of(rank);
  const std::string reason(control.failure_text, strnlen(control.failure_text, sizeof(control.failure_text)));
  return fmt::format("{} gave up: {}", sync_.members().called(rank), reason);
}

void LivenessCheck::check(const std::vector<int>& missing, bool any,
                          const std::function<std::string()>& what) {
  sync_.throw_if_aborted(what);
  std::string fates;
  bool hopeless = any;
  for (const int rank : missing) {
    const auto fate = fate_of(rank);
    hopeless = fate.has_value();
    if (fate) fates += (fates.empty() ? "" : "; ") + *fate;
    // If all ranks must arrive, the first one that cannot decides; otherwise the first one that can.
    if (hopeless != any) break;
  }
  if (!hopeless) return check_time(missing, what);
  if (!noticed_) noticed_ = net::Clock::now();
  if (net::Clock::now() - *noticed_ < coordination::kWaitTimes.loss_grace) return;
  throw PeerLost(fmt::format("{}: {} failed: {}", sync_.members().who, what(), fates));
}

void LivenessCheck::check_time(const std::vector<int>& missing,
                               const std::function<std::string()>& what) const {
  if (net::Clock::now() - begun_ < sync_.timeout()) return;
  const GroupInfo& members = sync_.members();
  std::string text;
  std::vector<int> names;
  for (const int rank : missing) {
    names.push_back(members.name(rank));
    text += fmt::format("{}{} did not arrive; the last operation that it started is #{}",
                        text.empty() ? "" : "; ", members.called(rank), sync_.control(rank).begun.load());
  }
  throw TimeoutError(
      fmt::format("{}: {} timed out after {} ms: {}", members.who, what(), sync_.timeout().count(), text),
      names);
}

}  // namespace lockstep::shm
