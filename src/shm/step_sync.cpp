#include "shm/step_sync.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/watch.hpp"

namespace lockstep::shm {

std::string describe(const Call& call) {
  std::string text = fmt::format("{} #{}", name_of(call.operation), call.sequence);
  if (call.operation == Operation::barrier) return text;
  text += fmt::format(" ({}", name_of(call.dtype));
  const bool any_size =
      call.operation == Operation::all_to_all || call.operation == Operation::all_reduce_sparse;
  if (!any_size) text += fmt::format(", {} elements", call.count);
  if (call.reduction != Reduction::none) text += fmt::format(", {}", name_of(call.reduction));
  if (call.root >= 0) text += fmt::format(", root {}", call.root);
  return text + ")";
}

std::string disagreement(const std::string& who, const Caller& one, const Caller& other) {
  return fmt::format(
      "{}: the ranks do not call the same: {} calls {}, {} calls {}. Every rank must make the same calls in "
      "the "
      "same order",
      who, one.name, one.call, other.name, other.call);
}

StepSync::StepSync(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout)
    : members_(members),
      connections_(std::move(connections)),
      timeout_(timeout),
      spinner_(connections_.has_cpu_per_rank) {
  for (const auto& peer : connections_.peers) controls_.push_back(&control_of(*peer.segment));
}

std::byte* StepSync::area(int member, std::uint64_t step) const noexcept {
  const auto& peer = connections_.peers[static_cast<std::size_t>(member)];
  return peer.segment->base() + layout().staging + (step % 2) * layout().staging_bytes;
}

StepSlot& StepSync::step_slot(int member, std::uint64_t step) const noexcept {
  return control(member).step_slots[step % 2];
}

std::string StepSync::describe_own_call() const { return describe(call_); }

void StepSync::begin(Call call, std::int64_t heap_offset) {
  if (broken_) std::rethrow_exception(broken_);
  call.sequence = ++sequence_;
  call_ = call;
  control(rank()).begun.store(sequence_, std::memory_order_relaxed);
  show(heap_offset);
}

void StepSync::begin_part(std::int64_t heap_offset) {
  if (broken_) std::rethrow_exception(broken_);
  show(heap_offset);
}

void StepSync::show(std::int64_t heap_offset) {
  step_slot(rank(), step_ + 1) = {call_, heap_offset};
  compared_ = false;
}

/// Steps only grow, so that a rank that was seen to have come is not checked again.
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
  // The stores of the steps have one order, so the last rank sees all others there: only it has to wake
  // anybody.
  if (all_have_come()) return notify(event);
  Watch watch(members_, connections_.peers, timeout_);
  wait_on(
      event, spinner_, [&] { return all_have_come(); },
      [&] {
        // A rank that has come meanwhile is not missing, even if it has died since.
        if (const auto ranks = missing(); !ranks.empty()) {
          watch.check(ranks, [&] { return describe_own_call(); });
        }
      });
}

void StepSync::step() {
  try {
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
  const Call& first = call_of(0);
  for (int r = 1; r < size(); ++r) {
    const Call& other = call_of(r);
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
  Control& own = control(rank());
  std::strncpy(own.failure_text, failure_text, sizeof(own.failure_text) - 1);
  own.presence.store(Presence::failed);
  notify(control(0).steps);
}

void StepSync::announce_failure(const char* reason) noexcept {
  if (control(rank()).presence.load() != Presence::here) return;
  break_group(reason);
  for (int r = 0; r < size(); ++r) notify(control(r).messages);
}

std::string StepSync::loss_among(const std::vector<int>& names) const {
  for (int member = 0; member < size(); ++member) {
    if (member == rank() || std::find(names.begin(), names.end(), members_.name(member)) == names.end())
      continue;
    if (const auto loss = loss_of(members_, connections_.peers, member)) return *loss;
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

}  // namespace lockstep::shm
