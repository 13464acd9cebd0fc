#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "failure/hang.hpp"
#include "net/deadline.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// What a node's launcher knows of its ranks, as Prometheus's text format 0.0.4
/// (prometheus.io/docs/instrumenting/exposition_formats). The launcher's thread tells it, and any thread may
/// read the text. Has no clock. All members are *Local*.
class JobMetrics {
 public:
  /// `run_id` and `host` become labels of everything.
  JobMetrics(std::string run_id, std::string host, std::string version);

  /// A round starts with `ranks` ranks on this node, of which none has been seen yet.
  void begin_round(const Assignment& assignment, int ranks);
  /// A rank of this node is replaced while the others keep running.
  void count_recovery();
  /// The status of the node's ranks at `now`: about once a second, and when they have ended.
  void see(const std::vector<RankStatus>& ranks, net::Deadline now);

  /// The page at `now`, complete lines.
  std::string text(net::Deadline now) const;

 private:
  /// Samples at a time, for the rate.
  struct Counted {
    net::Deadline time;
    std::uint64_t samples = 0;
  };

  double samples_per_second(int rank) const;

  std::string run_id_, host_, version_;
  mutable std::mutex mutex_;
  std::optional<Assignment> assignment_;
  int expected_ = 0;
  int recoveries_ = 0;
  std::vector<RankStatus> ranks_;
  net::Deadline seen_;
  std::map<int, std::deque<Counted>> counted_;
};

}  // namespace lockstep::launch
