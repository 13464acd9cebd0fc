#include "shm/watch.hpp"

#include <fmt/core.h>

#include <cstring>

#include "shm/layout.hpp"

namespace lockstep::shm {
namespace {

constexpr net::Milliseconds kGrace{200};

std::string failure_text_of(const Control& control) {
  return {control.failure_text, strnlen(control.failure_text, sizeof(control.failure_text))};
}

}  // namespace

std::optional<std::string> loss_of(const GroupInfo& members, const std::vector<Peer>& peers, int member) {
  const Peer& peer = peers[static_cast<std::size_t>(member)];
  const Control& control = control_of(*peer.segment);
  const std::uint64_t begun = control.begun.load();
  if (control.presence.load() == Presence::left)
    return fmt::format("{} left the group at its operation #{}", members.called(member), begun);
  if (!peer.process.has_ended()) return std::nullopt;
  return fmt::format("{} (pid {}) has ended; the last operation that it began is #{}", members.called(member),
                     peer.pid, begun);
}

/// Why the rank cannot come; nothing: it still can.
std::optional<std::string> Watch::fate_of(int rank) const {
  const Control& control = control_of(*peers_[static_cast<std::size_t>(rank)].segment);
  if (control.presence.load() == Presence::failed)
    return fmt::format("{} gave up: {}", members_.called(rank), failure_text_of(control));
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
    if (grace_is_over()) throw PeerLost(fmt::format("{}: {} failed: {}", members_.who, what(), *fate));
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
  if (grace_is_over()) throw PeerLost(fmt::format("{}: {} failed: {}", members_.who, what(), fates));
}

void Watch::check_time(const std::vector<int>& missing, const std::function<std::string()>& what) const {
  if (net::Clock::now() - begun_ < timeout_) return;
  std::string text;
  std::vector<int> names;
  for (const int rank : missing) {
    const Control& control = control_of(*peers_[static_cast<std::size_t>(rank)].segment);
    names.push_back(members_.name(rank));
    text += fmt::format("{}{} did not come, the last operation that it began is #{}",
                        text.empty() ? "" : "; ", members_.called(rank), control.begun.load());
  }
  throw TimeoutError(
      fmt::format("{}: {} timed out after {} ms: {}", members_.who, what(), timeout_.count(), text), names);
}

}  // namespace lockstep::shm
