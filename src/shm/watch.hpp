#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/deadline.hpp"
#include "shm/members.hpp"
#include "shm/peer_connections.hpp"

namespace lockstep::shm {

/// A rank that is waited for cannot come. The text says which one, and why.
class PeerLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// What keeps `member` from ever coming to anything again: it has ended, or left; or nothing. Any thread.
std::optional<std::string> loss_of(const Members& members, const std::vector<Peer>& peers, int member);

/// Looks, for one wait, whether those who are waited for can still come.
class Watch {
 public:
  Watch(const Members& members, const std::vector<Peer>& peers, net::Milliseconds timeout)
      : members_(members), peers_(peers), timeout_(timeout), begun_(net::Clock::now()) {}

  /// Throws when one of `missing` left the group, gave up or died: PeerLost naming it; TimeoutError
  /// when the time is up. `what` is what this rank does: "all_reduce #3 (...)". Whoever left or died has a
  /// moment to report why, before others report that it is gone.
  void check(const std::vector<int>& missing, const std::function<std::string()>& what);

  /// Like check() where any one of `missing` would do: throws when none can come.
  void check_any(const std::vector<int>& missing, const std::function<std::string()>& what);

 private:
  std::optional<std::string> fate_of(int rank) const;
  bool grace_is_over();
  void check_time(const std::vector<int>& missing, const std::function<std::string()>& what) const;

  const Members& members_;
  const std::vector<Peer>& peers_;
  net::Milliseconds timeout_;
  net::Deadline begun_;
  std::optional<net::Deadline> noticed_;
};

}  // namespace lockstep::shm
