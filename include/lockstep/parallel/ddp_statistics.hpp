#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What DistributedDataParallel has measured on this rank. Times are means over the synchronised steps so
/// far, in milliseconds; on GPUs they are not measured and stay 0.
struct DdpStatistics {
  std::int64_t steps = 0;
  std::int64_t parameters = 0;
  /// Of all gradients, and of each bucket in the order of sending.
  std::int64_t gradient_bytes = 0;
  std::vector<std::int64_t> bucket_bytes;
  /// Whether the buckets follow the order in which gradients were seen to arrive.
  bool buckets_rebuilt = false;

  double forward = 0;
  double backward_compute = 0;
  /// From the first bucket on its way to the last one back.
  double communication = 0;
  /// The part of `communication` during which backward computed.
  double hidden = 0;
  /// The part during which this rank only waited.
  double exposed() const { return communication - hidden; }
  double hidden_share() const { return communication > 0 ? hidden / communication : 1; }

  /// Wall time of a step, from one forward to the next, less what was spent waiting for other ranks.
  double compute = 0;

  /// Of the last report on stragglers, for each rank: the shortest compute time over the rank's own. Empty
  /// before the first.
  std::vector<double> relative_scores;

  /// A few lines for people.
  std::string to_text() const;
};

/// When a rank counts as slow. Every rank tells its mean compute time now and then, and rank 0 names the
/// ranks that keep the others waiting, on standard error.
struct StragglerOptions {
  /// Synchronised steps from one report to the next; 0: never.
  std::int64_t every = 100;
  /// Slow is a rank whose relative score (see DdpStatistics) is below this...
  double threshold = 0.7;
  /// ...in so many reports in a row.
  int reports = 3;
};

}  // namespace lockstep
