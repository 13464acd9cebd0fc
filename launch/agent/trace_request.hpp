#pragma once

#include <filesystem>
#include <vector>

#include "failure/hang.hpp"
#include "net/deadline.hpp"

namespace lockstep::launch {

/// The request that this node's ranks write their traces (LOCKSTEP_TRACE_DIR) before they are stopped because
/// of another's failure: what they did last is known to nobody else. For the launcher's thread, which is
/// never blocked. *Local*.
class TraceRequest {
 public:
  /// Asks by the folder's file `request`, which the ranks look at once a second. `ranks`: those that run;
  /// those that use the library, and so beat, are waited for. Never throws: without a folder nothing is
  /// waited for.
  TraceRequest(std::filesystem::path folder, const std::vector<RankStatus>& ranks, net::Deadline now);

  /// When to call `is_over`.
  net::Deadline deadline() const { return next_look_; }
  /// Whether all have written, have ended, or have had 3 s. `ranks` as before, by now.
  bool is_over(const std::vector<RankStatus>& ranks, net::Deadline now);

 private:
  bool is_written(int rank) const;

  std::filesystem::path folder_;
  std::filesystem::file_time_type asked_ = {};
  std::vector<int> awaited_;
  net::Deadline end_;
  net::Deadline next_look_;
};

}  // namespace lockstep::launch
