#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "logs/console.hpp"
#include "net/deadline.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {

/// The events of a job on this node for `--event-log-handler console`: one line of JSON each, with torchrun's
/// names and fields. As in torchrun, the ends of ranks are reported once, for the last round, and the agent
/// "succeeds" whatever became of its ranks, unless a signal ended the job. Does nothing with another handler.
/// Not thread-safe.
class EventLog {
 public:
  /// Both must outlive it. Run times are measured from here.
  EventLog(const LaunchConfig& config, Console& console) : config_(config), console_(console) {}

  /// The rendezvous is complete, and a round starts.
  void rendezvous_completed() { rendezvous_end_ = net::Clock::now(); }
  /// The ranks have numbers and were started.
  void started(const WorkerSpec& spec, const std::vector<Worker>& workers);
  /// All ranks of the round have ended: the agent starts waiting for the next one.
  void ended(const std::vector<Worker>& workers);
  /// The job is over; `signal_number` is the signal that ended it, or 0.
  void finished(int signal_number);

 private:
  /// `rank`: null for an event of the agent. `details`: members that only some events have.
  void write(const std::string& state, const Worker* rank, const nlohmann::ordered_json& details) const;

  const LaunchConfig& config_;
  Console& console_;
  const net::Deadline begin_ = net::Clock::now();
  net::Deadline waiting_since_ = begin_;
  net::Deadline rendezvous_end_ = begin_;
  WorkerSpec spec_;
  std::vector<Worker> ends_;
};

}  // namespace lockstep::launch
