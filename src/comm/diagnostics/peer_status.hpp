#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"

// What the ranks of a job do, and how a rank that waits for them reports it.
namespace lockstep::comm {

/// What a rank answers when others ask.
struct RankReport {
  /// Its progress in a group, and its last collectives there by number.
  struct Group {
    FlightRecorder::Progress progress;
    std::map<std::uint64_t, std::string> recent;
  };

  int rank = -1;
  /// "forward, step 57"; empty if the program has not reported any.
  std::string activity;
  std::map<std::string, Group> groups;
};

/// What is known about all ranks at one time.
struct PeerStatus {
  std::map<int, RankReport> reports;
  /// Ranks that have ended or are ending, and how: "left the group after 30 operations".
  std::map<int, std::string> departed;
  /// If false, nothing is known about any rank.
  bool store_answers = true;
};

/// What an operation waits for, as text and as ranks of the world.
struct WaitingFor {
  /// "ranks 0, 1 have arrived; rank 2 is in forward, step 57".
  std::string text;
  std::vector<int> missing;
};

/// `self`: this rank, in the world; `group`: the operation's group.
WaitingFor waiting_for(const OperationRecord& record, const GroupFacts& group, int self,
                       const PeerStatus& status);

/// "rank 1 left the group after 30 operations; ...", for ranks of the group except `self`. Empty: none.
std::string departed_text(const std::map<int, std::string>& departed, const GroupFacts& group, int self);

/// "rank 2 does not answer: stopped, or gone", for ranks of the group. Empty: all answer, or none could.
std::string silent_text(const PeerStatus& status, const GroupFacts& group, int self);

/// What each of these ranks does, as far as known: "rank 1 is in forward, step 57; rank 3 ...".
std::string activity_text(const PeerStatus& status, const std::vector<int>& ranks);

/// Why one of these ranks will not arrive at a barrier of a group in which this rank has begun `own`
/// collectives: it is gone, or in a collective that this rank has not called. "" if all can, as far as known.
std::string obstacle_text(const PeerStatus& status, const std::vector<int>& ranks, const std::string& group,
                          std::uint64_t own);

}  // namespace lockstep::comm
