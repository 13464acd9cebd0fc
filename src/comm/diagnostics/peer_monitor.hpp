#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::shm {
class Group;
}

namespace lockstep::comm {

/// Tells the ranks of a job of each other when one waits long, through the store alone, so that it works with
/// every backend and when nothing else does. A thread of each rank blocks in a wait on the store and answers
/// for the rank, whatever the rank's other threads do. Until somebody asks this costs nothing.
///
/// Any thread may call anything.
class PeerMonitor {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Whether these departed ranks tell all that the question was for.
  using Enough = std::function<bool(const std::map<int, std::string>& departed)>;

  /// `store` has a key prefix that all ranks share; the monitor takes two connections of its own, one for its
  /// thread, which warns on standard error of an operation that is under way for longer than `warn_after` (0:
  /// never).
  PeerMonitor(const Store& store, std::shared_ptr<FlightRecorder> recorder, Milliseconds warn_after);
  /// Tells the others that this rank leaves.
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  /// How long a rank that warns or gives up waits for the others' answers.
  static constexpr Milliseconds kAnswerTime{2000};

  /// Asks all ranks, and waits for their answers for at most `limit`. A store that is gone gives no answers,
  /// which shows within two seconds. Where what is known of departed ranks is `enough`, nobody is waited for.
  PeerStatus ask(Milliseconds limit = kAnswerTime, const Enough& enough = {});

  /// Lets the others know that this rank leaves. To be called before its connections close; the destructor
  /// does it otherwise.
  void announce_exit() noexcept;

  /// Lets the others know how this rank ends: "found that ...". The first call counts. Never throws.
  void announce_departure(const std::string& how) noexcept;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

/// Looks, while this rank waits in a barrier, whether those who have not come still can: not who has ended or
/// left, nor who is in a collective that this rank has not called. One for each wait.
class LivenessProbe {
 public:
  using Milliseconds = PeerMonitor::Milliseconds;

  /// `group` is the group's name in the recorder. `memory`, what shares memory with this rank, and `monitor`
  /// may be null.
  LivenessProbe(const std::string& group, const FlightRecorder& recorder, shm::Group* memory,
                PeerMonitor* monitor)
      : group_(group), recorder_(recorder), memory_(memory), monitor_(monitor) {}

  /// Why one of `missing`, ranks of the world, cannot come; "" as long as all can.
  std::string operator()(const std::vector<int>& missing, Milliseconds waited);

  /// So that those who wait for this rank elsewhere, in the collective that it has not called, end as well.
  void announce_failure(const std::string& reason) const noexcept;

 private:
  const std::string& group_;
  const FlightRecorder& recorder_;
  shm::Group* memory_;
  PeerMonitor* monitor_;
  Milliseconds next_question_{0};
};

}  // namespace lockstep::comm
