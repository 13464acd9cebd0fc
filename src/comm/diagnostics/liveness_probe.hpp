#pragma once

#include <string>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_monitor.hpp"

namespace lockstep::shm {
class Group;
}

namespace lockstep::comm {

/// Checks, while this rank waits in a barrier, whether the missing ranks can still arrive. They cannot if
/// they have ended or left, or are in a collective that this rank has not called. One per wait.
class LivenessProbe {
 public:
  using Milliseconds = PeerMonitor::Milliseconds;

  /// `group` is the group's name in the recorder. `memory`, the shared memory of this rank, and `monitor` may
  /// be null.
  LivenessProbe(const std::string& group, const FlightRecorder& recorder, shm::Group* memory,
                PeerMonitor* monitor)
      : group_(group), recorder_(recorder), memory_(memory), monitor_(monitor) {}

  /// Why one of `missing` (ranks of the world) cannot arrive; "" as long as all can.
  std::string operator()(const std::vector<int>& missing, Milliseconds waited);

  /// Ends the waits of ranks that wait for this one elsewhere, in the collective that it has not called.
  void announce_failure(const std::string& reason) const noexcept;

 private:
  const std::string& group_;
  const FlightRecorder& recorder_;
  shm::Group* memory_;
  PeerMonitor* monitor_;
  Milliseconds next_question_{0};
};

}  // namespace lockstep::comm
