#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"

// What the ranks of a job do, and how a rank that waits for them puts it into words.
namespace lockstep::comm {

/// What a rank says of itself when others ask.
struct RankReport {
  /// How far it is in a group, and its last collectives there by their numbers.
  struct Group {
    FlightRecorder::Progress progress;
    std::map<std::uint64_t, std::string> recent;
  };

  int rank = -1;
  /// "forward, step 57"; empty where the program never said.
  std::string activity;
  std::map<std::string, Group> groups;
};

/// What is known of all ranks at a time.
struct PeerStatus {
  std::map<int, RankReport> reports;
  /// Ranks that are gone, or end, and how: "left the group after 30 operations".
  std::map<int, std::string> departed;
  /// Else nothing is known of anybody.
  bool store_answers = true;
};

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
std::string activity_text(const PeerStatus& status, const std::vector<int>& ranks);

/// Why one of these ranks will not come to a barrier, of whose group this rank has begun `own` collectives:
/// it is gone, or in a collective that this rank has not called. "": all can come, as far as they say.
std::string obstacle_text(const PeerStatus& status, const std::vector<int>& ranks, const std::string& group,
                          std::uint64_t own);

/// "30 s", "1.5 s", "200 ms".
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace lockstep::comm
