#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "coordination/wait_times.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// Answers the questions of other ranks of a job when one waits for long. It uses only the store, so that it
/// works with every backend, and when other connections have failed. On each rank a thread blocks in a wait
/// on the store and answers, whatever the rank's other threads do. This costs nothing until a rank asks.
///
/// Any thread may call any method.
class PeerMonitor {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Whether these departed ranks already answer the question.
  using Enough = std::function<bool(const std::map<int, std::string>& departed)>;

  /// All ranks use the same key prefix of `store`. The monitor opens two connections, one of them for its
  /// thread. The thread warns on standard error if an operation takes longer than `warn_after` (0: never).
  PeerMonitor(const Store& store, std::shared_ptr<FlightRecorder> recorder, Milliseconds warn_after);
  /// Announces this rank's exit.
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  /// Asks all ranks and waits at most `limit` for their answers. If the store is gone, there are no answers;
  /// this takes at most kWaitTimes.store_answer. Does not wait if the departed ranks are `enough`.
  PeerStatus ask(Milliseconds limit = coordination::kWaitTimes.peer_answer, const Enough& enough = {});

  /// Announces that this rank leaves. To be called before its connections close; otherwise the destructor
  /// does it.
  void announce_exit() noexcept;

  /// Announces how this rank ends: "found that ...". Only the first call has an effect. Never throws.
  void announce_departure(const std::string& how) noexcept;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace lockstep::comm
