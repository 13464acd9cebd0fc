#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "logs/console.hpp"
#include "net/deadline.hpp"
#include "process/worker_group.hpp"

namespace lockstep::launch {

/// The events of a job on this node, for `--event-log-handler console`: a line of JSON each, with the names
/// and fields of torchrun's. As there, the ends of ranks are reported once, of the last round, and the agent
/// "succeeds" when it has seen to its ranks to their end, whatever that was. Does nothing where nobody asked.
/// For one thread.
class EventLog {
 public:
  /// Both must outlive it. Times run from here.
  EventLog(const LaunchConfig& config, Console& console) : config_(config), console_(console) {}

  /// The agent begins to wait for a round.
  void waiting() { waiting_since_ = net::Clock::now(); }
  /// The nodes have met, and a round begins.
  void met() { met_ = net::Clock::now(); }
  /// The ranks have numbers and were started.
  void started(const WorkerSpec& spec, const std::vector<Worker>& workers);
  /// No rank of the round is left.
  void ended(const std::vector<Worker>& workers);
  /// The job is over; `signal_number` ended it, or 0.
  void finished(int signal_number);

 private:
  /// `rank`: null for an event of the agent. `details`: the members that only some events have.
  void write(const std::string& state, const Worker* rank, const nlohmann::ordered_json& details) const;

  const LaunchConfig& config_;
  Console& console_;
  const net::Deadline begin_ = net::Clock::now();
  net::Deadline waiting_since_ = begin_;
  net::Deadline met_ = begin_;
  WorkerSpec spec_;
  std::vector<Worker> ends_;
};

}  // namespace lockstep::launch
