#include "call_exchange.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {
namespace {

template <class Value>
std::vector<at::Tensor> bytes_of(Value& value) {
  return {at::from_blob(&value, {static_cast<std::int64_t>(sizeof(value))}, at::kByte)};
}

std::string without_number(std::string call) {
  const auto mark = call.find('#');
  if (mark == std::string::npos) return call;
  return call.erase(mark, call.find_first_not_of("0123456789", mark + 1) - mark);
}

}  // namespace

bool CallExchange::Claim::operator!=(const Claim& other) const {
  return without_number(call.data()) != without_number(other.call.data());
}

CallExchange::CallExchange(c10d::Backend& gloo, Names names) : gloo_(gloo), names_(std::move(names)) {
  const int rank = gloo.getRank(), size = gloo.getSize();
  for (int distance = 1, tag = kFirstTag; distance < size; distance *= 2, ++tag) {
    rounds_.push_back({(rank + distance) % size, (rank - distance + size) % size, tag});
    expect(rounds_.back());
  }
}

CallExchange::~CallExchange() {
  constexpr Milliseconds kMoment{1000};
  for (const auto& round : rounds_) {
    try {
      if (!broken_ && round.sending) round.sending->wait(kMoment);
    } catch (const std::exception&) {
      return;  // Its receiver has gone, and needs it no more.
    }
  }
}

template <class Body>
void CallExchange::guarded(const Body& body) {
  if (broken_) std::rethrow_exception(broken_);
  try {
    body();
  } catch (...) {
    broken_ = std::current_exception();
    throw;
  }
}

/// Beforehand, because a sender whose receiver is known to wait sends at once; and several, because telling
/// the sender is a message, too.
void CallExchange::expect(Round& round) {
  for (auto& each : round.expected) {
    auto tensors = bytes_of(each.known);
    each.hearing = gloo_.recv(tensors, round.from, round.tag);
  }
  round.heard = 0;
}

void CallExchange::send(Round& round, Milliseconds timeout) {
  if (round.sending) round.sending->wait(timeout);
  round.sent = known_;
  auto tensors = bytes_of(round.sent);
  round.sending = gloo_.send(tensors, round.to, round.tag);
}

void CallExchange::hear(Round& round, Milliseconds timeout) {
  Expected& next = round.expected[round.heard++];
  next.hearing->wait(timeout);
  known_ = merged(known_, next.known);
  if (round.heard == round.expected.size()) expect(round);
}

CallExchange::Known CallExchange::merged(const Known& one, const Known& another) {
  const bool in_order = one.first.caller < another.first.caller;
  Known result = in_order ? one : another;
  const Known& behind = in_order ? another : one;
  for (const Claim* claim : {&behind.first, &behind.other}) {
    if (claim->caller < 0 || !(*claim != result.first)) continue;
    if (result.other.caller < 0 || claim->caller < result.other.caller) result.other = *claim;
  }
  return result;
}

void CallExchange::announce(const std::string& call, Milliseconds timeout) {
  guarded([&] {
    known_ = {};
    known_.first.caller = gloo_.getRank();
    std::memcpy(known_.first.call.data(), call.data(), std::min(call.size(), known_.first.call.size() - 1));
    if (!rounds_.empty()) send(rounds_.front(), timeout);
  });
}

void CallExchange::agree(Milliseconds timeout) {
  guarded([&] {
    for (auto& round : rounds_) {
      if (&round != &rounds_.front()) send(round, timeout);
      hear(round, timeout);
    }
    if (known_.other.caller >= 0) refuse(timeout);
  });
}

/// Not before all has been sent: who fails may close its connections.
void CallExchange::refuse(Milliseconds timeout) {
  for (const auto& round : rounds_) round.sending->wait(timeout);
  const auto called_by = [&](const Claim& claim) {
    return shm::Caller{names_.callers.at(static_cast<std::size_t>(claim.caller)), claim.call.data()};
  };
  throw CommunicationError(shm::disagreement(names_.who, called_by(known_.first), called_by(known_.other)));
}

}  // namespace lockstep::comm
