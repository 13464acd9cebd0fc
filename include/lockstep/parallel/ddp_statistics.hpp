#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Measurements of DistributedDataParallel on this rank. Times are means over the synchronized steps so far,
/// in milliseconds. On GPUs, times of forward, backward and communication are not measured and stay 0.
struct DdpStatistics {
  std::int64_t steps = 0;
  std::int64_t parameters = 0;
  /// Of all gradients, and of each bucket in the order of sending.
  std::int64_t gradient_bytes = 0;
  std::vector<std::int64_t> bucket_bytes;
  /// Whether the buckets follow the observed order of the gradients.
  bool buckets_rebuilt = false;

  double forward = 0;
  double backward_compute = 0;
  /// From the start of the first bucket's communication to the end of the last one's.
  double communication = 0;
  /// The part of `communication` during which backward computed.
  double hidden = 0;
  /// The part during which this rank only waited.
  double exposed() const { return communication - hidden; }
  double hidden_share() const { return communication > 0 ? hidden / communication : 1; }

  /// Wall time of a step, from one forward to the next, without the time spent waiting for other ranks. On
  /// GPUs, waiting in backward is included.
  double compute = 0;

  /// In the last straggler report, per rank: the shortest compute time divided by the rank's own. Empty
  /// before the first report.
  std::vector<double> relative_scores;

  /// A summary of a few lines.
  std::string to_text() const;
};

/// When a rank counts as slow. The ranks exchange their mean compute times at intervals, and rank 0 prints
/// the slow ranks to standard error. Models on a GPU are not compared: their compute times include waiting.
struct StragglerOptions {
  /// Synchronized steps between two reports; 0: no reports.
  std::int64_t every = 100;
  /// A rank is slow if its relative score (see DdpStatistics) is below this...
  double threshold = 0.7;
  /// ...in this many consecutive reports.
  int reports = 3;
};

}  // namespace lockstep
