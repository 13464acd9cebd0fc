#include "shm/watch.hpp"

#include <poll.h>

#include <cstring>

#include "shm/layout.hpp"

namespace lockstep::shm {
namespace {

constexpr net::Milliseconds kGrace{200};

bool has_ended(const Peer& peer) {
  if (!peer.lifeline) return false;
  pollfd entry{peer.lifeline.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

std::string number(std::uint64_t operation) { return "#" + std::to_string(operation); }

std::string failure_text_of(const Control& control) {
  return {control.failure_text, strnlen(control.failure_text, sizeof(control.failure_text))};
}

}  // namespace

std::optional<std::string> loss_of(const Members& members, const std::vector<Peer>& peers, int member) {
  const Peer& peer = peers[static_cast<std::size_t>(member)];
  const Control& control = control_of(*peer.segment);
  if (control.presence.load() == Presence::left)
    return members.called(member) + " left the group at its operation " + number(control.begun.load());
  if (!has_ended(peer)) return std::nullopt;
  return members.called(member) + " (pid " + std::to_string(peer.pid) +
         ") has ended; the last operation that it began is " + number(control.begun.load());
}

/// What keeps a rank from coming, or nothing.
std::optional<std::string> Watch::fate_of(int rank) const {
  const Control& control = control_of(*peers_[static_cast<std::size_t>(rank)].segment);
  if (control.presence.load() == Presence::failed)
    return members_.called(rank) + " gave up: " + failure_text_of(control);
  return loss_of(members_, peers_, rank);
}

bool Watch::grace_is_over() {
  if (!noticed_) noticed_ = net::Clock::now();
  return net::Clock::now() - *noticed_ >= kGrace;
}

void Watch::check(const std::vector<int>& missing, const std::function<std::string()>& what) {
  for (const int rank : missing) {
    const auto fate = fate_of(rank);
    if (!fate) continue;
    if (grace_is_over()) throw PeerLost(members_.who + ": " + what() + " failed: " + *fate);
    return;
  }
  check_time(missing, what);
}

void Watch::check_any(const std::vector<int>& missing, const std::function<std::string()>& what) {
  std::string fates;
  for (const int rank : missing) {
    const auto fate = fate_of(rank);
    if (!fate) return check_time(missing, what);
    fates += (fates.empty() ? "" : "; ") + *fate;
  }
  if (grace_is_over()) throw PeerLost(members_.who + ": " + what() + " failed: " + fates);
}

void Watch::check_time(const std::vector<int>& missing, const std::function<std::string()>& what) const {
  if (net::Clock::now() - begun_ < timeout_) return;
  std::string text;
  std::vector<int> names;
  for (const int rank : missing) {
    const Control& control = control_of(*peers_[static_cast<std::size_t>(rank)].segment);
    names.push_back(members_.name(rank));
    text += (text.empty() ? "" : "; ") + members_.called(rank) +
            " did not come, the last operation that it began is " + number(control.begun.load());
  }
  throw TimeoutError(
      members_.who + ": " + what() + " timed out after " + std::to_string(timeout_.count()) + " ms: " + text,
      names);
}

}  // namespace lockstep::shm
