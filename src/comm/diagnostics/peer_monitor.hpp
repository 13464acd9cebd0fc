#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "comm/diagnostics/flight_recorder.hpp"
#include "lockstep/comm/store.hpp"

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
  std::string doing;
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

/// Tells the ranks of a job of each other when one waits long, through the store alone, so that it works with
/// every backend and when nothing else does. A thread of each rank blocks in a wait on the store and answers
/// for the rank, whatever the rank's other threads do. Until somebody asks this costs nothing.
///
/// Any thread may call anything.
class PeerMonitor {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Called in the monitor's thread when an operation has been under way for long.
  using LongWait = std::function<void(const OperationRecord&, Milliseconds waited, const PeerStatus&)>;

  /// `store` has a key prefix that all ranks share; the monitor takes two connections of its own, one for its
  /// thread.
  PeerMonitor(const Store& store, std::shared_ptr<FlightRecorder> recorder, Milliseconds warn_after,
              LongWait on_long_wait);
  /// Tells the others that this rank leaves.
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  /// Asks all ranks, and waits for their answers for at most `limit`. A store that is gone gives no answers,
  /// which shows within two seconds.
  PeerStatus ask(Milliseconds limit);

  /// What is already known of ranks that are gone, without asking.
  std::map<int, std::string> departed();

  /// Lets the others know that this rank leaves. To be called before its connections close; the destructor
  /// does it otherwise.
  void announce_exit() noexcept;

  /// Lets the others know how this rank ends: "found that ...". The first call counts. Never throws.
  void announce_departure(const std::string& how) noexcept;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  std::function<void()> on_exit_;
  std::thread thread_;
};

}  // namespace lockstep::comm
