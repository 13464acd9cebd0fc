#include "comm/transport/fingerprint_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {
namespace {

template <class Value>
at::Tensor view_of_value(Value& value) {
  return view_of(&value, {sizeof(value), shm::Dtype::bytes});
}

std::string without_number(std::string call) {
  const auto mark = call.find('#');
  if (mark == std::string::npos) return call;
  return call.erase(mark, call.find_first_not_of("0123456789", mark + 1) - mark);
}

}  // namespace

bool FingerprintExchange::CollectiveFingerprint::operator!=(const CollectiveFingerprint& other) const {
  return without_number(call.data()) != without_number(other.call.data());
}

FingerprintExchange::FingerprintExchange(GlooConnection& gloo, Names names)
    : gloo_(gloo), names_(std::move(names)) {
  const int rank = gloo.rank(), size = gloo.size();
  for (int distance = 1, tag = kFirstTag; distance < size; distance *= 2, ++tag) {
    rounds_.push_back({(rank + distance) % size, (rank - distance + size) % size, tag});
    expect(rounds_.back());
  }
}

FingerprintExchange::~FingerprintExchange() {
  constexpr Milliseconds kMoment{1000};
  for (const auto& round : rounds_) {
    try {
      if (!broken_ && round.sending) gloo_.wait(*round.sending, kMoment);
    } catch (const std::exception&) {
      return;  // Its receiver has gone, and needs it no more.
    }
  }
}

template <class Body>
void FingerprintExchange::guarded(const Body& body) {
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
void FingerprintExchange::expect(Round& round) {
  for (auto& each : round.expected) {
    each.hearing = gloo_.recv(view_of_value(each.known), round.from, round.tag);
  }
  round.heard = 0;
}

void FingerprintExchange::send(Round& round, Milliseconds timeout) {
  if (round.sending) gloo_.wait(*round.sending, timeout);
  round.sent = known_;
  round.sending = gloo_.send(view_of_value(round.sent), round.to, round.tag);
}

void FingerprintExchange::hear(Round& round, Milliseconds timeout) {
  Expected& next = round.expected[round.heard++];
  gloo_.wait(*next.hearing, timeout);
  known_ = merged(known_, next.known);
  if (round.heard == round.expected.size()) expect(round);
}

FingerprintExchange::Known FingerprintExchange::merged(const Known& one, const Known& another) {
  const bool in_order = one.first.caller < another.first.caller;
  Known result = in_order ? one : another;
  const Known& behind = in_order ? another : one;
  for (const CollectiveFingerprint* fingerprint : {&behind.first, &behind.other}) {
    if (fingerprint->caller < 0 || !(*fingerprint != result.first)) continue;
    if (result.other.caller < 0 || fingerprint->caller < result.other.caller) result.other = *fingerprint;
  }
  return result;
}

void FingerprintExchange::announce(const std::string& call, Milliseconds timeout) {
  guarded([&] {
    known_ = {};
    known_.first.caller = gloo_.rank();
    std::memcpy(known_.first.call.data(), call.data(), std::min(call.size(), known_.first.call.size() - 1));
    if (!rounds_.empty()) send(rounds_.front(), timeout);
  });
}

void FingerprintExchange::agree(Milliseconds timeout) {
  guarded([&] {
    for (auto& round : rounds_) {
      if (&round != &rounds_.front()) send(round, timeout);
      hear(round, timeout);
    }
    if (known_.other.caller >= 0) refuse(timeout);
  });
}

/// Not before all has been sent: who fails may close its connections.
void FingerprintExchange::refuse(Milliseconds timeout) {
  for (const auto& round : rounds_) gloo_.wait(*round.sending, timeout);
  const auto called_by = [&](const CollectiveFingerprint& fingerprint) {
    return shm::Caller{names_.callers.at(static_cast<std::size_t>(fingerprint.caller)),
                       fingerprint.call.data()};
  };
  throw CommunicationError(shm::disagreement(names_.who, called_by(known_.first), called_by(known_.other)));
}

}  // namespace lockstep::comm
