#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/deadline.hpp"
#include "shm/group_info.hpp"
#include "shm/peer_connections.hpp"

namespace lockstep::shm {

/// A peer that this rank waits for has died, left or failed. The text says which one, and why.
class PeerLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Says that `member` has died or left; nothing: it has not. Any thread.
std::optional<std::string> loss_of(const GroupInfo& members, const std::vector<Peer>& peers, int member);

/// Checks, during one wait, that the ranks that are waited for are still alive.
class Watch {
 public:
  Watch(const GroupInfo& members, const std::vector<Peer>& peers, net::Milliseconds timeout)
      : members_(members), peers_(peers), timeout_(timeout), begun_(net::Clock::now()) {}

  /// Throws when one of `missing` left the group, gave up or died: PeerLost naming it; TimeoutError
  /// after the timeout. `what` is what this rank does: "all_reduce #3 (...)". Waits a moment before it
  /// reports a rank as gone, so that the rank itself, or its launcher, can report the cause first.
  void check(const std::vector<int>& missing, const std::function<std::string()>& what);

  /// Like check() where any one of `missing` would do: throws when none of them can come.
  void check_any(const std::vector<int>& missing, const std::function<std::string()>& what);

 private:
  std::optional<std::string> fate_of(int rank) const;
  bool grace_is_over();
  void check_time(const std::vector<int>& missing, const std::function<std::string()>& what) const;

  const GroupInfo& members_;
  const std::vector<Peer>& peers_;
  net::Milliseconds timeout_;
  net::Deadline begun_;
  std::optional<net::Deadline> noticed_;
};

}  // namespace lockstep::shm
