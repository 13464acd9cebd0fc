#pragma once

#include <string>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_monitor.hpp"

namespace lockstep::comm {

/// What keeps an operation waiting, in words and as ranks of the world.
struct WaitingFor {
  /// "ranks 0, 1 have arrived; rank 2 is in forward, step 57".
  std::string text;
  std::vector<int> missing;
};

/// For the rank `self` of `group`, to which the operation belongs.
WaitingFor waiting_for(const OperationRecord& record, const GroupFacts& group, int self,
                       const PeerStatus& status);

/// "rank 1 left the group after 30 operations; ...": of the group's ranks, but of `self`. Empty: none.
std::string departed_text(const std::map<int, std::string>& departed, const GroupFacts& group, int self);

/// "rank 2 does not answer: stopped, or gone": of the group's ranks. Empty: all answer, or nobody could.
std::string silent_text(const PeerStatus& status, const GroupFacts& group, int self);

/// What each of these ranks does, as far as they say: "rank 1 is in forward, step 57; rank 3 ...".
std::string doings_text(const PeerStatus& status, const std::vector<int>& ranks);

/// "30 s", "1.5 s", "200 ms".
std::string duration_text(std::int64_t milliseconds);

}  // namespace lockstep::comm
